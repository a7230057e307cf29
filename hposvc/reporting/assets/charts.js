/* Charts that can be moved: best so far, learning curves, parallel coordinates.

   A <figure data-chart="KIND"> holds a still picture in .still, and its data, as the page `charts`
   documents them, in a <script type="application/json">; data-encoding="gzip" says that the text is
   base64 of the compressed JSON, and data-src on the figure that they are fetched. Where this file
   runs, the still picture makes room for one that answers to mouse, touch and keyboard.
   `hposvcCharts.update(figure, data)` shows other data; `mountAll(root)` mounts what htmx brought. */
(() => {
  "use strict";

  const HEIGHT = 360;
  const KINDS = {};
  const views = new Map(); // figure -> {redraw, destroy}

  /* ---- small things ---- */

  /** Return a new element with attributes and children. */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  /** Return a number as people read it, with four significant digits. */
  function number(value) {
    if (value == null || Number.isNaN(value)) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace(/\.?0*e\+?/, "e");
    return String(Number(value.toPrecision(4)));
  }

  /** Return a duration in its two largest units. */
  function duration(seconds) {
    const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
    const first = parts.findIndex(([, size]) => seconds >= size);
    if (first < 0) return `${number(seconds)} s`;
    const [unit, size] = parts[first];
    const whole = Math.floor(seconds / size);
    const next = parts[first + 1];
    const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
    return rest && whole < 20 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
  }

  /** Return the colour of a token as this theme has it, in a form that a canvas takes. */
  function colour(name) {
    const probe = element("span");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const resolved = getComputedStyle(probe).color;
    probe.remove();
    return resolved;
  }

  /** Return a colour between two, as `colour` gives them. */
  function between(from, to, share) {
    const [a, b] = [from, to].map((text) => text.match(/[\d.]+/g).map(Number));
    return `rgb(${[0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * share)).join(",")})`;
  }

  const isBetter = (data, a, b) => (data.goal === "maximize" ? a > b : a < b);

  /** Return a scale on which a few bad values do not hide the others, as `robust` in svg.py. */
  function robust(data, values) {
    const finite = values.filter(Number.isFinite).sort((a, b) => a - b);
    if (!finite.length) return { log: false, range: [0, 1] };
    let [low, high] = [finite[0], finite.at(-1)];
    const [q10, q90] = [0.1, 0.9].map((share) => finite[Math.round(share * (finite.length - 1))]);
    const down = data.goal !== "maximize";
    if (down && low > 0 && q90 / low > 30) {
      return { log: true, range: [low / 1.2, Math.min(high, q90 * 5) * 1.2] };
    }
    const spread = 1.5 * (q90 - q10);
    if (down && spread) high = finite.findLast((value) => value <= q90 + spread);
    else if (spread) low = finite.find((value) => value >= q10 - spread);
    return { log: false, range: padded([low, high]) };
  }

  /** Return the round numbers from `low` to `high`, or both where there is none between them. */
  function rounds(low, high, log) {
    if (log) {
      const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
      const every = Math.ceil((last - first) / 7);
      const digits = high / low < 100 ? [1, 2, 5] : [1];
      const found = [];
      for (let power = first; power <= last; power += every) {
        found.push(...digits.map((digit) => Number(`${digit}e${power}`)));
      }
      const inside = found.filter((each) => each >= low * 0.999 && each <= high * 1.001);
      return inside.length > 1 ? inside : [low, high];
    }
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => each >= rough * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    const count = Math.floor(high / step + 1e-9) - first + 1;
    return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  }

  /** Return the range of numbers, a little wider; never empty. */
  function padded(values) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return [0, 1];
    const margin = (high - low) * 0.05 || Math.abs(low) * 0.1 || 1;
    return [low - margin, high + margin];
  }

  /** A box of words beside the pointer. */
  class Tip {
    constructor(holder) {
      this.box = element("div", { class: "tip", hidden: true });
      this.holder = holder;
      holder.append(this.box);
    }

    show(x, y, ...content) {
      this.box.replaceChildren(...content);
      this.box.hidden = false;
      const { width, height } = this.holder.getBoundingClientRect();
      const { offsetWidth, offsetHeight } = this.box;
      const left = x + 14 + offsetWidth > width ? x - 14 - offsetWidth : x + 14;
      const top = Math.min(Math.max(0, y - offsetHeight / 2), height - offsetHeight);
      this.box.style.left = `${Math.max(0, Math.min(left, width - offsetWidth))}px`;
      this.box.style.top = `${Math.max(0, top)}px`;
    }

    hide() {
      this.box.hidden = true;
    }
  }

  /** Return buttons of which one is pressed. */
  function choice(label, options, chosen, choose) {
    const group = element("div", { class: "segmented", role: "group", "aria-label": label });
    for (const [value, title] of options) {
      const button = element("button", { type: "button", "aria-pressed": value === chosen }, title);
      button.setAttribute("aria-pressed", String(value === chosen));
      button.addEventListener("click", () => {
        for (const other of group.children) {
          other.setAttribute("aria-pressed", String(other === button));
        }
        choose(value);
      });
      group.append(button);
    }
    return group;
  }

  /** Return the options of a uPlot axis in this theme's colours. */
  function axis(label, values, whole = false) {
    return {
      label,
      stroke: colour("muted"),
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      size: 30,
      labelSize: 20,
      labelGap: 0,
      grid: { stroke: colour("grid"), width: 1 },
      ticks: { stroke: colour("grid"), width: 1, size: 4 },
      ...(values ? { values } : {}),
      // No tick between two trials.
      ...(whole ? { incrs: [1, 2, 5].flatMap((n) => [...Array(9).keys()].map((i) => n * 10 ** i))
        .sort((a, b) => a - b) } : {}),
    };
  }

  const plain = (_, ticks) => ticks.map((tick) => (tick == null ? "" : number(tick)));

  /** Return a y axis that is as wide as its labels. */
  function yAxis(label) {
    return {
      ...axis(label, plain),
      size: (_, values) => 18 + 7 * Math.max(3, ...(values || []).map((text) => text.length)),
    };
  }

  /* ---- best so far ---- */

  KINDS.best = (holder, data) => {
    const units = { trials: "trials begun", seconds: "time", cost: data.cost_unit };
    let against = "trials";
    let all = false;
    let plot = null;
    const area = element("div", { class: "plot" });
    const ways = Object.entries(units).filter(([way]) => data.until[way] > 0);
    const everything = element(
      "button",
      { type: "button", "aria-pressed": "false", onclick: () => {
        all = !all;
        everything.setAttribute("aria-pressed", String(all));
        draw();
      } },
      "All values",
    );
    holder.append(
      element(
        "div",
        { class: "tools" },
        choice("Against", ways, against, (way) => { against = way; draw(); }),
        everything,
        element("span", { class: "spring" }),
        element("span", { class: "hint" }, "Drag to zoom, double-click to go back"),
      ),
      area,
    );
    const tip = new Tip(area);

    function draw() {
      plot?.destroy();
      const end = data.until[against];
      const best = [[...data[against], end], [...data.value, data.value.at(-1)]];
      // Marks at one place (times of a simulation) would not be in order.
      const places = best[0].map((place, i) => Math.max(place, best[0][i - 1] ?? -Infinity));
      const line = new Map(places.map((place, i) => [place, best[1][i]]));
      const sets = [[[...line.keys()], [...line.values()]]];
      const { [against]: reached, value: values, trial: names } = data.others;
      sets.push([reached, values]);
      const joined = uPlot.join(sets);
      const trialAt = new Map(reached.map((place, i) => [place, names[i]]));
      places.forEach((place, i) => {
        if (data.trial[i] && !trialAt.has(place)) trialAt.set(place, data.trial[i]);
      });
      const shown = [...data.value, ...values];
      const { log, range } = all ? { log: false, range: padded(shown) } : robust(data, shown);
      const [bright, faint] = [colour("best"), colour("faint")];
      plot = new uPlot(
        {
          width: area.clientWidth,
          height: HEIGHT,
          legend: { show: false },
          scales: {
            x: { time: false },
            y: { range: () => range, ...(log && { distr: 3 }) },
          },
          axes: [
            axis(units[against], against === "seconds"
              ? (_, ticks) => ticks.map((tick) => (tick ? duration(tick) : "0"))
              : plain, against === "trials"),
            yAxis(data.metric),
          ],
          series: [
            {},
            { stroke: bright, width: 2.5, spanGaps: true, paths: uPlot.paths.stepped({ align: 1 }),
              points: { show: false } },
            { stroke: faint, fill: faint, width: 0, paths: () => null,
              points: { show: true, size: 5, width: 0, fill: faint } },
          ],
          cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
          hooks: { setCursor: [hover] },
        },
        joined,
        area,
      );
      plot.root.setAttribute("aria-hidden", "true");

      function hover(self) {
        const { idx, left, top } = self.cursor;
        if (idx == null || left < 0) return tip.hide();
        const place = joined[0][idx];
        const trial = trialAt.get(place);
        let record = 0;
        while (record + 1 < data.trial.length && places[record + 1] <= place) record++;
        const words = [];
        if (trial) {
          const value = joined[2]?.[idx] ?? joined[1][idx];
          words.push(element("b", {}, trial), ` ${data.metric} ${number(value)}`, element("br"));
        }
        if (places[0] <= place) {
          words.push(`best so far: ${number(data.value[record])}, by ${data.trial[record]}`);
        }
        const at = self.valToPos(place, "x");
        if (words.length) tip.show(at + self.bbox.left / devicePixelRatio, top + 8, ...words);
        else tip.hide();
      }
    }

    draw();
    return { redraw: draw, destroy: () => plot?.destroy() };
  };

  /* ---- learning curves ---- */

  KINDS.curves = (holder, data) => {
    const unit = data.unit || "step";
    const curves = data.trials;
    const ranked = curves
      .map((curve, i) => [i, curve.value.findLast((value) => value != null)])
      .filter(([, value]) => value != null)
      .sort((a, b) => (isBetter(data, a[1], b[1]) ? -1 : 1))
      .map(([i]) => i);
    const pinned = new Set();
    let lit = -1; // the curve under the pointer
    let plot = null;
    let all = false;
    const area = element("div", {
      class: "plot", tabindex: 0, role: "application",
      "aria-label": `Learning curves of ${curves.length} trials. Up and down arrows go through the ` +
        "trials by their last value, Enter pins one, Escape lets go.",
    });
    const over = element("canvas", { class: "over", "aria-hidden": "true" });
    const cards = element("div", { class: "pinned" });
    const words = element("div", { class: "visually-hidden", "aria-live": "polite" });
    const everything = element(
      "button",
      { type: "button", "aria-pressed": "false", onclick: () => {
        all = !all;
        everything.setAttribute("aria-pressed", String(all));
        draw();
      } },
      "All values",
    );
    holder.append(
      element("div", { class: "tools" }, everything, legend(), element("span", { class: "spring" }),
        element("span", { class: "hint" }, "Point at a curve for its trial, click to pin it, drag to zoom")),
      area, cards, words,
    );
    const tip = new Tip(area);

    /** Return what the marks mean. */
    function legend() {
      const marks = [["best", "best trial"], ["c1", "trials"]];
      if ((data.cuts || []).some(({ cut }) => cut != null)) marks.push(["ink", "cut at a rung"]);
      return element("span", {}, ...marks.flatMap(([tone, text]) => {
        const swatch = element("span", { class: "swatch" });
        swatch.style.background = `var(--${tone})`;
        return [swatch, `${text}\u2003`];
      }));
    }

    /** Return what is known of a curve's trial, in words. */
    function describe(curve) {
      const last = curve.value.length - 1;
      const lines = (curve.decisions || []).map((decision) => {
        const [step, verdict, ...said] = Array.isArray(decision)
          ? decision
          : [decision.step, decision.verdict, decision.words];
        const what = said.filter(Boolean).join(": ");
        return element("li", {}, `${unit} ${step}: ${verdict}${what ? ` – ${what}` : ""}`);
      });
      return [
        element("b", {}, curve.trial), curve.trial === data.baseline ? " baseline," : "", ` ${(curve.state || "").toLowerCase()}`, element("br"),
        last < 0 ? "no report" : `${data.metric} ${number(curve.value[last])} at ${unit} ${curve.step[last]}`,
        ...(lines.length ? [element("ul", {}, ...lines.slice(-6))] : []),
      ];
    }

    function trace(context, curve) {
      let open = false;
      for (let i = 0; i < curve.step.length; i++) {
        const value = curve.value[i];
        if (value == null || !Number.isFinite(value)) { open = false; continue; }
        const x = plot.valToPos(curve.step[i], "x", true);
        const y = plot.valToPos(value, "y", true);
        if (open) context.lineTo(x, y);
        else context.moveTo(x, y);
        open = true;
      }
    }

    function clip(context) {
      const { left, top, width, height } = plot.bbox;
      context.beginPath();
      context.rect(left, top, width, height);
      context.clip();
    }

    /** Draw a curve alone, with its ends and decisions. */
    function mark(context, curve, tone, width) {
      const ratio = devicePixelRatio;
      context.strokeStyle = context.fillStyle = tone;
      context.lineWidth = width * ratio;
      context.beginPath();
      trace(context, curve);
      context.stroke();
      for (const i of [0, curve.step.length - 1]) {
        if (curve.value[i] == null) continue;
        context.beginPath();
        context.arc(plot.valToPos(curve.step[i], "x", true), plot.valToPos(curve.value[i], "y", true),
          3 * ratio, 0, 7);
        context.fill();
      }
    }

    function paint(self) {
      plot = self;
      const { ctx: context, bbox } = self;
      const ratio = devicePixelRatio;
      context.save();
      clip(context);
      context.setLineDash([3 * ratio, 4 * ratio]);
      context.strokeStyle = colour("muted");
      context.lineWidth = ratio;
      for (const rung of data.rungs || []) {
        const x = Math.round(self.valToPos(rung, "x", true)) + 0.5;
        context.beginPath();
        context.moveTo(x, bbox.top);
        context.lineTo(x, bbox.top + bbox.height);
        context.stroke();
      }
      context.setLineDash([]);
      context.font = `${11 * ratio}px system-ui, sans-serif`;
      context.textAlign = "left";
      context.fillStyle = colour("muted");
      let free = bbox.left;
      for (const { step, arrived, continued } of data.cuts || []) {
        const text = `${arrived} → ${continued}`;
        const x = Math.max(free, self.valToPos(step, "x", true) + 4 * ratio);
        const end = x + context.measureText(text).width + 8 * ratio;
        if (end > bbox.left + bbox.width || x > self.valToPos(step, "x", true) + 40 * ratio) continue;
        context.fillText(text, x, bbox.top + 11 * ratio);
        free = end;
      }
      context.strokeStyle = colour("c1");
      context.globalAlpha = Math.max(0.1, Math.min(0.7, 60 / Math.max(1, curves.length)));
      context.lineWidth = (curves.length > 200 ? 1 : 1.3) * ratio;
      for (const curve of curves) {
        context.beginPath();
        trace(context, curve);
        context.stroke();
      }
      // Where curves end that somebody cut.
      context.globalAlpha = curves.length > 200 ? 0.5 : 0.9;
      context.fillStyle = colour("muted");
      for (const curve of curves) {
        const last = curve.value.length - 1;
        if (curve.state !== "STOPPED" || last < 0 || curve.value[last] == null) continue;
        const x = self.valToPos(curve.step[last], "x", true);
        const y = self.valToPos(curve.value[last], "y", true);
        context.fillRect(x - 1 * ratio, y - 4 * ratio, 2 * ratio, 8 * ratio);
      }
      context.globalAlpha = 1;
      context.fillStyle = colour("ink");
      for (const { step, cut } of data.cuts || []) {
        if (cut == null) continue;
        const x = self.valToPos(step, "x", true);
        context.fillRect(x - 9 * ratio, self.valToPos(cut, "y", true) - ratio, 18 * ratio, 2 * ratio);
      }
      const baseline = curves.find((curve) => curve.trial === data.baseline);
      if (baseline) mark(context, baseline, colour("c3"), 2);
      const best = curves.find((curve) => curve.trial === data.best);
      if (best) mark(context, best, colour("best"), 2.5);
      context.restore();
      light();
    }

    /** Draw pinned curves, and the one under the pointer. */
    function light() {
      over.width = plot.ctx.canvas.width;
      over.height = plot.ctx.canvas.height;
      over.style.width = plot.ctx.canvas.style.width || `${over.width / devicePixelRatio}px`;
      over.style.height = plot.ctx.canvas.style.height || `${over.height / devicePixelRatio}px`;
      const context = over.getContext("2d");
      clip(context);
      let place = 0;
      for (const i of pinned) mark(context, curves[i], colour(tones[place++ % tones.length]), 2.2);
      if (lit >= 0) mark(context, curves[lit], colour("ink"), 2.2);
    }

    const tones = ["c2", "c3", "c4", "c6", "c5"];

    function showPinned() {
      const made = [...pinned].map((i, place) => {
        const swatch = element("span", { class: "swatch" });
        swatch.style.background = `var(--${tones[place % tones.length]})`;
        const close = element("button", {
          type: "button", class: "quiet", "aria-label": `Unpin ${curves[i].trial}`,
          onclick: () => pin(i),
        }, "✕");
        return element("div", { class: "card" }, close, swatch, ...describe(curves[i]));
      });
      cards.replaceChildren(...made);
    }

    function pin(i) {
      if (!pinned.delete(i)) pinned.add(i);
      showPinned();
      light();
    }

    /** Return the curve nearest to a point of the plot, in CSS pixels; -1: none is near. */
    function nearest(left, top) {
      let [found, least] = [-1, 24];
      const step = plot.posToVal(left, "x");
      curves.forEach((curve, i) => {
        const steps = curve.step;
        if (!steps.length || steps[0] > step || steps.at(-1) < step) {
          // Beside its ends a curve is found by its end.
          const end = steps.length && steps.at(-1) < step ? steps.length - 1 : 0;
          if (!steps.length || curve.value[end] == null) return;
          const away = Math.hypot(plot.valToPos(steps[end], "x") - left,
            plot.valToPos(curve.value[end], "y") - top);
          if (away < least) [found, least] = [i, away];
          return;
        }
        let [low, high] = [0, steps.length - 1];
        while (high - low > 1) {
          const middle = (low + high) >> 1;
          if (steps[middle] <= step) low = middle;
          else high = middle;
        }
        const [a, b] = [curve.value[low], curve.value[high]];
        if (a == null || b == null) return;
        const share = steps[high] > steps[low] ? (step - steps[low]) / (steps[high] - steps[low]) : 0;
        const away = Math.abs(plot.valToPos(a + (b - a) * share, "y") - top);
        if (away < least) [found, least] = [i, away];
      });
      return found;
    }

    function show(i, left, top) {
      lit = i;
      light();
      if (i < 0) return tip.hide();
      const { bbox } = plot;
      tip.show(left + bbox.left / devicePixelRatio, top + bbox.top / devicePixelRatio,
        ...describe(curves[i]));
    }

    function draw() {
      plot?.destroy();
      const values = curves.flatMap((curve) => curve.value.filter(Number.isFinite));
      const scale = all ? { log: false, range: padded(values) } : robust(data, values);
      const { range } = scale;
      let [first, last] = [Infinity, 1];
      for (const { step } of curves) {
        if (!step.length) continue;
        first = Math.min(first, step[0]);
        last = Math.max(last, step.at(-1));
      }
      if (first >= last) first = last - 1;
      const rungs = data.rungs || [];
      // As in the still picture: rungs that grow by a factor stand at equal distances.
      const log = rungs.length > 1 && first > 0 && rungs.at(-1) / rungs[0] >= 4 && last / first >= 9;
      new uPlot(
        {
          width: area.clientWidth,
          height: HEIGHT + 40,
          legend: { show: false },
          scales: { 
            x: { time: false, ...(log && { distr: 3 }), range: (_, low, high) => [low, high] },
            y: { range: () => range, ...(scale.log && { distr: 3 }) },
          },
          axes: [
            log ? { ...axis(unit, plain), splits: () => [...new Set([first, ...rungs, last])],
              filter: (_, splits) => splits }
              : axis(unit, plain),
            yAxis(data.metric),
          ],
          series: [{}, { show: true, paths: () => null, points: { show: false } }],
          cursor: { x: false, y: false, points: { show: false }, drag: { x: true, y: false } },
          hooks: {
            init: [(self) => { plot = self; self.ctx.canvas.after(over); }],
            draw: [paint],
            setCursor: [(self) => {
              const { left, top } = self.cursor;
              if (left < 0) { if (lit >= 0) show(-1); } else show(nearest(left, top), left, top);
            }],
            ready: [(self) => {
              let from = 0;
              self.over.addEventListener("pointerdown", (event) => { from = event.clientX; });
              self.over.addEventListener("click", (event) => {
                if (lit >= 0 && Math.abs(event.clientX - from) < 4) pin(lit);
              });
            }],
          },
        },
        [[first, last], [range[0], range[1]]],
        area,
      );
      plot.root.setAttribute("aria-hidden", "true");
    }

    area.addEventListener("keydown", (event) => {
      const at = ranked.indexOf(lit);
      const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: ranked.length - 1 };
      if (event.key in moves && ranked.length) {
        const i = ranked[Math.max(0, Math.min(ranked.length - 1, moves[event.key]))];
        const last = curves[i].value.findLastIndex(Number.isFinite);
        show(i, plot.valToPos(curves[i].step[last], "x"), plot.valToPos(curves[i].value[last], "y"));
        words.textContent = tip.box.textContent;
      } else if (event.key === "Enter" && lit >= 0) pin(lit);
      else if (event.key === "Escape") show(-1);
      else return;
      event.preventDefault();
    });
    draw();
    return { redraw: draw, destroy: () => plot?.destroy() };
  };

  /* ---- parallel coordinates ---- */

  KINDS.parallel = (holder, data) => {
    const [TOP, BOTTOM, LEAST, UNUSED] = [46, 34, 104, 22];
    const axes = data.axes.map(makeAxis);
    const count = data.trial.length;
    const brushes = axes.map(() => [0, 1]); // shares from the bottom
    const tools = element("div", { class: "tools" });
    const said = element("span", { role: "status" });
    const clear = element("button", { type: "button", onclick: () => {
      brushes.forEach((brush) => brush.splice(0, 2, 0, 1));
      changed();
    } }, "Clear selection");
    tools.append(said, clear, element("span", { class: "spring" }),
      element("span", { class: "hint" }, "Drag along an axis to select, or move its handles with the arrow keys"));
    const scroll = element("div", { class: "still" });
    const area = element("div", { class: "plot" });
    const canvas = element("canvas", { "aria-hidden": "true" });
    const over = element("canvas", { class: "over", "aria-hidden": "true" });
    area.append(canvas, over);
    scroll.append(area);
    holder.append(tools, scroll);
    const tip = new Tip(area);
    let [width, left, right, lit, frame] = [0, 0, 0, -1, 0];
    const height = HEIGHT;
    const controls = axes.map((_, i) => makeControls(i));

    /** Return an axis that maps values to shares of its height, from the bottom. */
    function makeAxis({ name, scale, categories, low, high }) {
      if (scale === "category") {
        const index = new Map(categories.map((value, i) => [String(value), i]));
        const of = (value) => {
          const place = index.get(String(value));
          return place == null ? null : (place + 0.5) / categories.length;
        };
        return { name, of, ticks: categories.map((value) => [of(value), String(value)]),
          word: (share) => String(categories[Math.min(categories.length - 1,
            Math.max(0, Math.floor(share * categories.length)))]) };
      }
      const log = scale === "log";
      const to = log ? Math.log : (value) => value;
      const back = log ? Math.exp : (value) => value;
      if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 1, high + 1];
      const [a, b] = [to(low), to(high)];
      // What lies beyond the axis, as the worst losses may, stands at its end.
      const of = (value) => (typeof value !== "number"
        ? null : Math.min(1, Math.max(0, log && value <= 0 ? 0 : (to(value) - a) / (b - a))));
      const word = (share) => number(back(a + (b - a) * share));
      const ticks = rounds(low, high, log).map((value) => [of(value), number(value)]);
      return { name, of, ticks, word };
    }

    const shares = axes.map((one, i) => data.columns[i].map(one.of));
    const { rank } = data; // 1: the best
    const order = [...Array(count).keys()].sort((a, b) => rank[b] - rank[a]);

    const x = (i) => left + (axes.length > 1 ? (i * (right - left)) / (axes.length - 1) : 0);
    const y = (share) => (share == null
      ? height - BOTTOM + UNUSED : height - BOTTOM - share * (height - TOP - BOTTOM));

    function isInside(row) {
      return brushes.every(([low, high], i) => {
        if (low <= 0 && high >= 1) return true;
        const share = shares[i][row];
        return share != null && share >= low - 1e-9 && share <= high + 1e-9;
      });
    }

    /** Return the two handles of an axis, its brush, and what follows the pointer along it. */
    function makeControls(i) {
      const strip = element("div", { class: "strip" });
      const brush = element("div", { class: "brush", hidden: true });
      const handles = [0, 1].map((end) => {
        const handle = element("div", {
          class: "handle", role: "slider", tabindex: 0, "aria-orientation": "vertical",
          "aria-label": `${end ? "Highest" : "Lowest"} ${axes[i].name}`,
          "aria-valuemin": 0, "aria-valuemax": 100,
        });
        handle.addEventListener("keydown", (event) => {
          const moves = { ArrowUp: 0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1,
            Home: -1, End: 1 };
          if (event.key === "Escape") brushes[i].splice(0, 2, 0, 1);
          else if (event.key in moves) {
            const [low, high] = end ? [brushes[i][0], 1] : [0, brushes[i][1]];
            brushes[i][end] = Math.min(high, Math.max(low, brushes[i][end] + moves[event.key]));
          } else return;
          event.preventDefault();
          changed();
        });
        return handle;
      });
      let from = null;
      const share = (event) => {
        const at = event.clientY - area.getBoundingClientRect().top;
        return Math.min(1, Math.max(0, (height - BOTTOM - at) / (height - TOP - BOTTOM)));
      };
      let grabbed = -1;
      strip.addEventListener("pointerdown", (event) => {
        strip.setPointerCapture(event.pointerId);
        from = share(event);
        grabbed = handles.indexOf(event.target);
        if (grabbed >= 0) from = brushes[i][1 - grabbed];
        event.preventDefault();
        if (grabbed >= 0) handles[grabbed].focus();
      });
      strip.addEventListener("pointermove", (event) => {
        if (from == null) return;
        const to = share(event);
        brushes[i].splice(0, 2, Math.min(from, to), Math.max(from, to));
        changed();
      });
      strip.addEventListener("pointerup", (event) => {
        if (from != null && grabbed < 0 && Math.abs(share(event) - from) < 0.01) {
          brushes[i].splice(0, 2, 0, 1); // a click takes the brush away
          changed();
        }
        from = null;
      });
      strip.append(brush, ...handles);
      area.append(strip);
      return { strip, brush, handles };
    }

    function place() {
      controls.forEach(({ strip, brush, handles }, i) => {
        const [low, high] = brushes[i];
        strip.style.left = `${x(i) - 14}px`;
        strip.style.top = `${TOP - 12}px`;
        strip.style.height = `${height - TOP - BOTTOM + 24}px`;
        brush.hidden = low <= 0 && high >= 1;
        brush.style.top = `${y(high) - TOP + 12}px`;
        brush.style.height = `${Math.max(2, y(low) - y(high))}px`;
        [low, high].forEach((share, end) => {
          handles[end].style.top = `${y(share) - TOP + 12}px`;
          handles[end].setAttribute("aria-valuenow", Math.round(share * 100));
          handles[end].setAttribute("aria-valuetext", axes[i].word(share));
        });
      });
    }

    function size(each) {
      each.width = Math.round(width * devicePixelRatio);
      each.height = Math.round(height * devicePixelRatio);
      each.style.width = `${width}px`;
      each.style.height = `${height}px`;
      const context = each.getContext("2d");
      context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
      context.lineJoin = "round";
      return context;
    }

    function trace(context, row) {
      context.beginPath();
      shares.forEach((column, i) => context.lineTo(x(i), y(column[row])));
      context.stroke();
    }

    function draw() {
      // As wide as its place, but never so narrow that names touch: then it scrolls.
      width = Math.max(scroll.clientWidth, axes.length * LEAST);
      left = 30;
      right = width - 56;
      const context = size(canvas);
      size(over);
      place();
      const [faint, deep] = [colour("faint"), colour("c1")];
      const inside = order.filter(isInside);
      const chosen = new Set(inside);
      context.lineWidth = 1;
      context.strokeStyle = colour("grid");
      context.globalAlpha = Math.max(0.12, Math.min(0.8, 60 / Math.max(1, count)));
      if (inside.length < count) {
        for (const row of order) if (!chosen.has(row)) trace(context, row);
      }
      context.globalAlpha = Math.max(0.08, Math.min(0.75, 80 / Math.max(1, inside.length)));
      context.lineWidth = inside.length > 300 ? 1 : 1.3;
      for (const row of inside.reverse()) {
        context.strokeStyle = between(faint, deep, rank[row] ** 2);
        trace(context, row);
      }
      context.globalAlpha = 1;
      const best = data.trial.indexOf(data.best);
      if (best >= 0 && chosen.has(best)) {
        context.lineWidth = 2.5;
        context.strokeStyle = colour("best");
        trace(context, best);
      }
      label(context);
      const narrowed = brushes.some(([low, high]) => low > 0 || high < 1);
      said.textContent = narrowed
        ? `${chosen.size} of ${count} trials selected`
        : `${count}${data.of > count ? ` of ${data.of}` : ""} trials`;
      clear.hidden = !narrowed;
      const detail = { trials: narrowed ? new Set([...chosen].map((row) => data.trial[row])) : null };
      holder.dispatchEvent(new CustomEvent("hposvc:select", { bubbles: true, detail }));
    }

    /** Write names and ticks, each on a piece of paper so that lines do not cross them. */
    function label(context) {
      const [ink, muted, paper] = [colour("ink"), colour("muted"), colour("paper")];
      const unused = shares.some((column) => column.includes(null));
      axes.forEach((one, i) => {
        context.strokeStyle = muted;
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(x(i), y(0));
        context.lineTo(x(i), y(1));
        context.stroke();
        const room = axes.length > 1 ? (right - left) / (axes.length - 1) - 16 : width - 60;
        context.font = "600 12px system-ui, sans-serif";
        context.fillStyle = ink;
        const last = i === axes.length - 1;
        context.textAlign = i === 0 ? "left" : last ? "right" : "center";
        const at = i === 0 ? 2 : last ? width - 2 : x(i);
        context.fillText(fit(context, one.name, room), at, 16);
        context.font = "11px system-ui, sans-serif";
        context.textAlign = "left";
        const every = Math.ceil(one.ticks.length / 12);
        one.ticks.forEach(([share, text], n) => {
          if (n % every) return;
          const shown = fit(context, text, last ? 46 : room - 12);
          const length = context.measureText(shown).width;
          context.globalAlpha = 0.82;
          context.fillStyle = paper;
          context.fillRect(x(i) + 5, y(share) - 7, length + 4, 14);
          context.globalAlpha = 1;
          context.fillStyle = muted;
          context.fillText(shown, x(i) + 7, y(share) + 4);
        });
      });
      if (unused) {
        context.fillStyle = muted;
        context.fillText("not used", 2, height - 2);
      }
    }

    function fit(context, text, room) {
      if (context.measureText(text).width <= room) return text;
      let cut = text;
      while (cut.length > 1 && context.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
      return `${cut}…`;
    }

    function changed() {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(draw);
    }

    function light(row, at, top) {
      lit = row;
      const context = size(over);
      if (row < 0) return tip.hide();
      context.strokeStyle = colour("ink");
      context.lineWidth = 2.2;
      trace(context, row);
      const lines = axes
        .map((one, i) => [one.name, data.columns[i][row]])
        .filter(([, value]) => value != null)
        .map(([name, value]) => element("li", {}, `${name}: ${number(value)}`));
      tip.show(at, top, element("b", {}, data.trial[row]), element("ul", {}, ...lines));
    }

    area.addEventListener("pointermove", (event) => {
      if (event.buttons) return;
      const box = area.getBoundingClientRect();
      const [at, top] = [event.clientX - box.left, event.clientY - box.top];
      const gap = axes.length > 1 ? (right - left) / (axes.length - 1) : 1;
      const i = Math.min(axes.length - 2, Math.max(0, Math.floor((at - left) / gap)));
      if (i < 0) return;
      const share = (at - x(i)) / gap;
      let [found, least] = [-1, 9];
      for (let row = 0; row < count; row++) {
        const line = y(shares[i][row]) * (1 - share) + y(shares[i + 1][row]) * share;
        const away = Math.abs(line - top);
        if (away < least && isInside(row)) [found, least] = [row, away];
      }
      light(found, at, top);
    });
    area.addEventListener("pointerleave", () => light(-1));
    draw();
    return { redraw: draw, destroy: () => cancelAnimationFrame(frame) };
  };

  /* ---- mounting ---- */

  /** Return the JSON that a script element holds. */
  async function read(script) {
    if (script.dataset.encoding !== "gzip") return JSON.parse(script.textContent);
    const bytes = Uint8Array.from(atob(script.textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  async function dataOf(figure) {
    if (figure.dataset.src) return (await fetch(figure.dataset.src)).json();
    const script = figure.querySelector("script[type='application/json']");
    return script && read(script);
  }

  /** Show data in a figure, in place of its still picture. */
  function update(figure, data) {
    const build = KINDS[figure.dataset.chart];
    if (!build || !data) return;
    views.get(figure)?.destroy();
    let holder = figure.querySelector(".moving");
    if (!holder) {
      holder = element("div", { class: "moving" });
      (figure.querySelector(".still") ?? figure.lastElementChild).after(holder);
    }
    holder.replaceChildren();
    const still = figure.querySelector(":scope > .still");
    if (still) still.hidden = true;
    views.set(figure, build(holder, data));
  }

  async function mount(figure) {
    if (views.has(figure) || !KINDS[figure.dataset.chart]) return;
    views.set(figure, { redraw() {}, destroy() {} }); // mounted once, though it takes a moment
    try {
      update(figure, await dataOf(figure));
      figure.dataset.ready = "";
      widths.observe(figure);
    } catch (error) {
      figure.querySelector(".moving")?.remove(); // the still picture stays
      const still = figure.querySelector(":scope > .still");
      if (still) still.hidden = false;
      console.error(`chart ${figure.dataset.chart}:`, error);
    }
  }

  function mountAll(root = document) {
    for (const figure of root.querySelectorAll("figure[data-chart]")) near.observe(figure);
  }

  function redrawAll() {
    for (const view of views.values()) view.redraw();
  }

  // A chart is built when it comes near the screen, and drawn again when its width changes.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      mount(target);
    }
  }, { rootMargin: "600px" });
  const known = new WeakMap();
  const widths = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const before = known.get(target);
      known.set(target, contentRect.width);
      if (before != null && Math.abs(before - contentRect.width) > 1) views.get(target)?.redraw();
    }
  });

  /* ---- theme ---- */

  const dark = matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem("hposvc-theme");
    } catch {
      return null; // a browser may forbid storage to files
    }
  }

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.setAttribute("aria-pressed", String(theme === "dark"));
      button.hidden = false;
    }
    redrawAll();
  }

  function toggleTheme() {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("hposvc-theme", theme);
    } catch { /* then it lasts as long as the page */ }
    setTheme(theme);
  }

  function start() {
    setTheme(stored() ?? (dark.matches ? "dark" : "light"));
    dark.addEventListener("change", () => stored() ?? setTheme(dark.matches ? "dark" : "light"));
    document.addEventListener("click", (event) => {
      if (event.target.closest("[data-theme-toggle]")) toggleTheme();
    });
    document.addEventListener("htmx:load", (event) => mountAll(event.target));
    mountAll();
  }

  window.hposvcCharts = { element, kinds: KINDS, mount, mountAll, number, duration, read, update };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
