/* Makes pictures answer to mouse, touch and keyboard. Python draws every picture, once; here
   nothing is scaled or drawn anew: what a mark says is its <title>, where it lies is its outline.

   A <figure data-chart="KIND"> holds its picture in .still. A script of JSON within may hold the
   chart's views, pairs of a name and a picture, of which the first is there already;
   data-encoding="gzip" says that the text is base64 of the compressed JSON. Elements with
   [data-axis] are axes along which marks with [data-trial] are selected.
   A kind in `hposvcCharts.kinds` is no picture: its function builds it of the figure's JSON. */
(() => {
  "use strict";

  const KINDS = {};
  const NEAR = 24; // pixels of the screen from which the pointer finds a mark
  const LEAST = 0.8; // of a picture's size; a smaller place scrolls
  const HINTS = [
    ["[data-axis]", "Drag along an axis to select, or move its handles with the arrow keys"],
    ["[data-trial]", "Point at a curve for its trial, click to pin it"],
  ];
  const TONES = ["c2", "c3", "c4", "c6", "c5"]; // of pinned marks

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

  /** Return words as a paragraph whose first line is strong. */
  function paragraph(words) {
    const [first, ...others] = words.split("\n");
    const lines = others.map((line) => element("li", {}, line));
    return [element("b", {}, first), ...(lines.length ? [element("ul", {}, ...lines)] : [])];
  }

  /** A box of words beside the pointer, within the part of its holder that is scrolled to. */
  class Tip {
    constructor(holder, scroll) {
      this.box = element("div", { class: "tip", hidden: true });
      this.holder = holder;
      this.scroll = scroll;
      holder.append(this.box);
    }

    show(clientX, clientY, ...content) {
      this.box.replaceChildren(...content);
      this.box.hidden = false;
      const { left, top, height } = this.holder.getBoundingClientRect();
      const { offsetWidth, offsetHeight } = this.box;
      const [x, first] = [clientX - left, this.scroll.scrollLeft];
      const last = first + this.scroll.clientWidth - offsetWidth;
      const beside = x + 14 > last ? x - 14 - offsetWidth : x + 14;
      const above = Math.min(clientY - top - offsetHeight / 2, height - offsetHeight);
      this.box.style.left = `${Math.max(first, Math.min(beside, last))}px`;
      this.box.style.top = `${Math.max(0, above)}px`;
    }

    hide() {
      this.box.hidden = true;
    }
  }

  /** Return buttons of which one is pressed. */
  function choice(label, options, chosen, choose) {
    const group = element("div", { class: "segmented", role: "group", "aria-label": label });
    for (const name of options) {
      group.append(element("button", {
        type: "button", "aria-pressed": String(name === chosen), onclick: (event) => {
          for (const other of group.children) {
            other.setAttribute("aria-pressed", String(other === event.currentTarget));
          }
          choose(name);
        },
      }, name));
    }
    return group;
  }

  /* ---- marks ---- */

  const known = new WeakMap(); // picture -> its marks

  /** Return a picture's marks, those of trials and the topmost first: their words and outlines. */
  function readMarks(svg) {
    if (!known.has(svg)) known.set(svg, takeMarks(svg));
    return known.get(svg);
  }

  function takeMarks(svg) {
    const marks = [...svg.querySelectorAll(":not(text) > title")].reverse().map((title) => {
      const group = title.parentElement;
      const words = title.textContent;
      title.remove(); // the browser would show it a second time
      const parts = group.matches("g") ? [...group.children] : [group];
      return { group, words, lines: parts.flatMap(outline) };
    });
    return marks.sort((a, b) => !a.group.dataset.trial - !b.group.dataset.trial);
  }

  /** Return the lines of an element, each a list of points in the picture's own units. */
  function outline(part) {
    const of = (name) => Number(part.getAttribute(name));
    if (part.tagName === "circle") return [[[of("cx"), of("cy")]]];
    if (part.tagName === "rect") {
      return [[[of("x") + of("width") / 2, of("y") + of("height") / 2]]];
    }
    return (part.getAttribute("d") ?? "").split("M").slice(1).map((line) =>
      [...line.matchAll(/(?:^|L)([-\d.]+) ([-\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]));
  }

  /** Return how far a point is from a line. */
  function distance(line, x, y) {
    let least = Math.hypot(line[0][0] - x, line[0][1] - y);
    for (let i = 1; i < line.length; i++) {
      const [[x0, y0], [x1, y1]] = [line[i - 1], line[i]];
      if (Math.min(x0, x1) - x > least || x - Math.max(x0, x1) > least) continue;
      const [dx, dy] = [x1 - x0, y1 - y0];
      const share = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy || 1);
      const at = Math.min(1, Math.max(0, share));
      least = Math.min(least, Math.hypot(x0 + at * dx - x, y0 + at * dy - y));
    }
    return least;
  }

  /** Let marks be pointed at, walked by keys, and pinned. */
  class Marks {
    constructor(figure, still, scroll) {
      this.svg = null;
      this.marks = [];
      this.lit = null;
      this.over = null;
      this.pinned = new Map(); // words -> a copy of the mark
      this.still = still;
      this.tip = new Tip(still, scroll);
      this.cards = element("div", { class: "pinned" });
      this.said = element("div", { class: "visually-hidden", "aria-live": "polite" });
      figure.append(this.cards, this.said);
      still.addEventListener("pointermove", (event) => {
        if (!event.buttons) this.light(this.find(event), event.clientX, event.clientY);
      });
      still.addEventListener("pointerleave", () => this.light(null));
      still.addEventListener("click", (event) => {
        const mark = this.find(event);
        if (mark) this.pin(mark);
      });
      scroll.addEventListener("keydown", (event) => event.target === scroll && this.walk(event));
    }

    /** Take the marks of another picture. */
    read(svg) {
      this.light(null);
      this.svg = svg;
      this.marks = readMarks(svg);
      const words = [...this.pinned.keys()];
      for (const copy of this.pinned.values()) copy.remove();
      this.pinned.clear();
      for (const mark of this.marks) if (words.includes(mark.words)) this.pin(mark);
      this.showPinned();
    }

    find({ clientX, clientY, target }) {
      const matrix = this.svg.getScreenCTM().inverse();
      const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(matrix);
      let [found, least] = [null, NEAR * matrix.a];
      for (const mark of this.marks) {
        if (mark.group.classList.contains("out")) continue;
        if (mark.group.contains(target)) return mark;
        for (const line of mark.lines) {
          const away = line.length ? distance(line, x, y) : Infinity;
          if (away < least) [found, least] = [mark, away];
        }
      }
      return found;
    }

    /** Return a copy of a mark that lies above all others. */
    copy(mark, tone) {
      const copy = mark.group.cloneNode(true);
      copy.classList.add("lit");
      copy.style.setProperty("--tone", `var(--${tone})`);
      mark.group.parentElement.append(copy);
      return copy;
    }

    light(mark, clientX, clientY) {
      if (mark !== this.lit) {
        this.over?.remove();
        this.over = mark && this.copy(mark, "ink");
        this.lit = mark;
      }
      if (mark) this.tip.show(clientX, clientY, ...paragraph(mark.words));
      else this.tip.hide();
    }

    pin(mark) {
      this.pinned.get(mark.words)?.remove();
      if (!this.pinned.delete(mark.words)) {
        const tone = TONES.find((each) => ![...this.pinned.values()].some((copy) =>
          copy.style.getPropertyValue("--tone") === `var(--${each})`)) ?? TONES[0];
        this.pinned.set(mark.words, this.copy(mark, tone));
      }
      this.showPinned();
    }

    showPinned() {
      this.cards.replaceChildren(...[...this.pinned].map(([words, copy]) => {
        const swatch = element("span", { class: "swatch" });
        swatch.style.background = copy.style.getPropertyValue("--tone");
        const close = element("button", {
          type: "button", class: "quiet", "aria-label": `Unpin ${words.split("\n")[0]}`,
          onclick: () => this.pin({ words }),
        }, "✕");
        return element("div", { class: "card" }, close, swatch, ...paragraph(words));
      }));
    }

    walk(event) {
      const shown = this.marks.filter(({ group }) => !group.classList.contains("out"));
      const at = shown.indexOf(this.lit);
      const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.length - 1 };
      if (event.key in moves && shown.length) {
        const mark = shown[Math.max(0, Math.min(shown.length - 1, moves[event.key]))];
        const [x, y] = mark.lines.at(-1).at(-1);
        const place = new DOMPoint(x, y).matrixTransform(this.svg.getScreenCTM());
        this.light(mark, place.x, place.y);
        this.said.textContent = mark.words;
      } else if (event.key === "Enter" && this.lit) this.pin(this.lit);
      else if (event.key === "Escape") this.light(null);
      else return;
      event.preventDefault();
    }
  }

  /* ---- selecting along axes ---- */

  /** Return a brush for each axis of a picture; the marks that one leaves out get the class out. */
  function brushAxes(figure, still, tools, marks) {
    const { svg } = marks;
    const axes = [...svg.querySelectorAll("[data-axis]")].map(({ dataset }) =>
      JSON.parse(dataset.axis));
    const { width, height } = svg.viewBox.baseVal;
    const lines = marks.marks.filter(({ group }) => group.dataset.trial);
    const brushes = axes.map(() => [0, 1]); // shares from the bottom
    // Where a line crosses an axis; null below it, where lines without a value lie.
    const shares = lines.map((line) => line.lines[0].map(([, y], i) => {
      const { top, bottom } = axes[i];
      return y > bottom + 1 ? null : (bottom - y) / (bottom - top);
    }));
    const said = element("span", { role: "status" });
    const clear = element("button", { type: "button", onclick: () => {
      brushes.forEach((brush) => brush.splice(0, 2, 0, 1));
      changed();
    } }, "Clear selection");
    tools.append(said, clear);
    const controls = axes.map((_, i) => makeControls(i));

    /** Return the value at a share of an axis, in words. */
    function word({ scale, low, high, categories }, share) {
      if (scale === "category") {
        const place = Math.floor(share * categories.length);
        return String(categories[Math.min(categories.length - 1, place)]);
      }
      if (scale === "log") return number(low * (high / low) ** share);
      return number(low + (high - low) * share);
    }

    /** Return the two handles of an axis, its brush, and what follows the pointer along it. */
    function makeControls(i) {
      const { name, x, top, bottom } = axes[i];
      const strip = element("div", { class: "strip" });
      strip.style.left = `${(100 * x) / width}%`;
      strip.style.top = `${(100 * top) / height}%`;
      strip.style.height = `${(100 * (bottom - top)) / height}%`;
      const brush = element("div", { class: "brush", hidden: true });
      const handles = [0, 1].map((end) => {
        const handle = element("div", {
          class: "handle", role: "slider", tabindex: 0, "aria-orientation": "vertical",
          "aria-label": `${end ? "Highest" : "Lowest"} ${name}`,
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
      let grabbed = -1;
      const share = (event) => {
        const box = strip.getBoundingClientRect();
        return Math.min(1, Math.max(0, (box.bottom - event.clientY) / box.height));
      };
      strip.addEventListener("pointerdown", (event) => {
        strip.setPointerCapture(event.pointerId);
        grabbed = handles.indexOf(event.target);
        from = grabbed >= 0 ? brushes[i][1 - grabbed] : share(event);
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
      strip.addEventListener("click", (event) => event.stopPropagation()); // it pins no mark
      strip.append(brush, ...handles);
      still.append(strip);
      return { brush, handles };
    }

    function isInside(row) {
      return brushes.every(([low, high], i) => {
        if (low <= 0 && high >= 1) return true;
        const share = row[i];
        return share != null && share >= low - 1e-9 && share <= high + 1e-9;
      });
    }

    function changed() {
      controls.forEach(({ brush, handles }, i) => {
        const [low, high] = brushes[i];
        brush.hidden = low <= 0 && high >= 1;
        brush.style.bottom = `${100 * low}%`;
        brush.style.height = `${100 * (high - low)}%`;
        [low, high].forEach((share, end) => {
          handles[end].style.bottom = `${100 * share}%`;
          handles[end].setAttribute("aria-valuenow", Math.round(share * 100));
          handles[end].setAttribute("aria-valuetext", word(axes[i], share));
        });
      });
      const chosen = new Set();
      lines.forEach(({ group }, row) => {
        const inside = isInside(shares[row]);
        group.classList.toggle("out", !inside);
        if (inside) chosen.add(group.dataset.trial);
      });
      const narrowed = brushes.some(([low, high]) => low > 0 || high < 1);
      said.textContent = narrowed
        ? `${chosen.size} of ${lines.length} trials selected` : `${lines.length} trials`;
      clear.hidden = !narrowed;
      const detail = { trials: narrowed ? chosen : null };
      figure.dispatchEvent(new CustomEvent("hposvc:select", { bubbles: true, detail }));
    }

    changed();
  }

  /* ---- mounting ---- */

  /** Return the JSON that a script element holds. */
  async function read(script) {
    if (script.dataset.encoding !== "gzip") return JSON.parse(script.textContent);
    const bytes = Uint8Array.from(atob(script.textContent.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  const answering = new WeakMap(); // figure -> the function that takes the picture now on the screen

  /** Let a figure's picture answer. */
  async function answer(figure) {
    const scroll = figure.querySelector(":scope > .still");
    const script = scroll.querySelector("script");
    const views = script ? await read(script) : [];
    script?.remove();
    const still = element("div", { class: "plot" }, ...scroll.childNodes);
    if (views.length) views[0][1] = still.innerHTML;
    const tools = element("div", { class: "tools" });
    const selected = element("div", { class: "tools" });
    const marks = new Marks(figure, still, scroll);
    scroll.append(still);

    function attach() {
      const drawn = [...still.querySelectorAll("svg[role]")];
      const svg = drawn.find((each) => each.getClientRects().length) ?? drawn[0];
      still.style.minWidth = `${LEAST * svg.viewBox.baseVal.width}px`;
      for (const strip of still.querySelectorAll(".strip")) strip.remove();
      selected.replaceChildren();
      marks.read(svg);
      if (svg.querySelector("[data-axis]")) brushAxes(figure, still, selected, marks);
      if (!marks.marks.length) return;
      scroll.setAttribute("role", "application");
      scroll.setAttribute("aria-label", `${figure.querySelector("figcaption").firstChild.textContent}. ` +
        "Up and down arrows go through its marks, Enter pins one, Escape lets go.");
    }

    function show(name) {
      figure.dataset.view = name;
      const made = new DOMParser().parseFromString(new Map(views).get(name), "text/html").body;
      still.replaceChildren(...made.childNodes, marks.tip.box);
      attach();
    }

    const names = views.map(([name]) => name);
    const name = names.includes(figure.dataset.view) ? figure.dataset.view : names[0];
    if (views.length) tools.append(choice("Show", names, name, show));
    if (name === names[0]) attach();
    else show(name);
    if (selected.firstChild) tools.append(selected);
    const hint = HINTS.find(([mark]) => marks.svg.querySelector(mark));
    if (hint) tools.append(element("span", { class: "hint" }, hint[1]));
    scroll.before(tools);
    answering.set(figure, attach);
  }

  /** Build a figure that is no picture, in place of what shows it without scripts. */
  async function build(figure) {
    const holder = element("div", { class: "moving" });
    const still = figure.querySelector(":scope > .still");
    still.after(holder);
    try {
      KINDS[figure.dataset.chart](holder, await read(figure.querySelector(":scope > script")));
      still.hidden = true;
    } catch (error) {
      holder.remove(); // what is there stays
      console.error(`chart ${figure.dataset.chart}:`, error);
    }
  }

  async function mount(figure) {
    await (KINDS[figure.dataset.chart] ? build(figure) : answer(figure));
    figure.dataset.ready = "";
  }

  function mountAll(root = document) {
    for (const figure of root.querySelectorAll("figure[data-chart]")) {
      if (!asked.has(figure)) near.observe(figure);
      asked.add(figure); // it may be brought by an event, and be on the page of another
    }
  }

  const asked = new WeakSet();
  // A picture is read when it comes near the screen.
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      mount(target);
    }
  }, { rootMargin: "600px" });
  // Some pictures have a narrow form for phones.
  matchMedia("(max-width: 47rem)").addEventListener("change", () => {
    for (const figure of document.querySelectorAll("figure[data-ready]")) answering.get(figure)?.();
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

  window.hposvcCharts = { element, kinds: KINDS, mount, mountAll, number };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
