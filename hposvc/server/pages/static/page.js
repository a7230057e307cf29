/* What pages do by themselves: follow a sweep, ask before a button acts, log out. */
(() => {
  "use strict";

  const LEAST_MS = 1000; // between two refreshes
  const CHARTS_MS = 5000; // between two refreshes of charts
  const PARTS_MS = 15000; // between two refreshes of parts that are pages of their own
  const SHARE = 4; // a refresh that took a second is followed by so many seconds of rest
  const body = document.body;
  const notice = document.getElementById("notice");

  /** Tell a person something; quietly: only to screen readers. */
  function say(text, quietly = false) {
    notice.classList.toggle("quietly", quietly);
    notice.textContent = text;
    clearTimeout(say.timer);
    if (!quietly) say.timer = setTimeout(() => (notice.textContent = ""), 8000);
  }

  /* ---- live ---- */

  let shown = Number(body.dataset.seq ?? 0); // number of the last event on the page
  let newest = shown;
  let next = 0; // when the page may be refreshed again
  let timer = null;
  let charted = performance.now();
  let parted = performance.now();

  /** Put what the server says now in place of what is on the page, where it differs. */
  async function refresh() {
    const begun = performance.now();
    const wanted = newest;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        location.assign(answer.url);
        return;
      }
      if (answer.ok) {
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
        shown = Math.max(wanted, Number(document.getElementById("overview")?.dataset.seq ?? 0));
      }
    } catch {
      /* the server is away: events, or the next look, begin again */
    }
    next = performance.now() + Math.max(LEAST_MS, SHARE * (performance.now() - begun));
    if (newest > shown) later();
    refreshCharts(); // in the background
    refreshParts();
  }

  function replace(fresh) {
    exchange(fresh, document.querySelectorAll("[data-live]"));
    const dialogs = document.getElementById("dialogs");
    const others = fresh.getElementById("dialogs");
    if (dialogs && others && !dialogs.querySelector("dialog[open]")) dialogs.replaceWith(others);
    document.title = fresh.title;
  }

  /** Put fresh parts in place of old ones, and keep what a person did there. */
  function exchange(fresh, parts) {
    for (const old of parts) {
      const made = fresh.getElementById(old.id);
      if (!made || made.outerHTML === old.dataset.source) continue;
      if (holdsInput(old)) continue;
      const source = made.outerHTML;
      const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
      const scrolls = keepScrolls(old);
      const open = [...old.querySelectorAll("details")].map((details) => details.open);
      const checked = [...old.querySelectorAll("input:checked")].map((box) => box.value);
      old.replaceWith(made);
      made.dataset.source = source;
      made.querySelectorAll("details").forEach((details, i) => (details.open ||= open[i] ?? false));
      for (const box of made.querySelectorAll("input[type=checkbox]")) {
        box.checked = checked.includes(box.value);
      }
      scrolls(made);
      if (made.dataset.said && made.dataset.said !== old.dataset.said) say(made.dataset.said, true);
      window.htmx?.process(made);
      ready(made);
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    }
  }

  function holdsInput(part) {
    const at = document.activeElement;
    return part.contains(at) && at.matches("input:not([type=checkbox]), textarea, select");
  }

  /** Keep how far each box was scrolled; a log that was read to its end stays at its end. */
  function keepScrolls(part) {
    const boxes = [...part.querySelectorAll(".scroll, .still, pre")].map((box) => [
      box.scrollLeft,
      box.scrollTop,
      box.scrollTop + box.clientHeight >= box.scrollHeight - 4,
    ]);
    return (made) =>
      [...made.querySelectorAll(".scroll, .still, pre")].forEach((box, i) => {
        if (!boxes[i]) return;
        [box.scrollLeft, box.scrollTop] = boxes[i];
        if (box.hasAttribute("data-tail") && boxes[i][2]) box.scrollTop = box.scrollHeight;
      });
  }

  function later() {
    if (timer !== null || document.hidden) return;
    timer = setTimeout(async () => {
      await refresh();
      timer = null;
      if (newest > shown) later();
    }, Math.max(0, next - performance.now()));
  }

  /** Refresh the charts on the screen, unless somebody is reading one. */
  async function refreshCharts() {
    if (performance.now() - charted < CHARTS_MS) {
      clearTimeout(refreshCharts.timer);
      refreshCharts.timer = setTimeout(refreshCharts, CHARTS_MS);
      return;
    }
    charted = performance.now();
    for (const figure of document.querySelectorAll("figure[data-url]")) {
      const box = figure.getBoundingClientRect();
      const away = box.bottom < 0 || box.top > innerHeight;
      if (away || figure.matches(":hover, :focus-within") || figure.querySelector(".pinned *")) {
        continue;
      }
      if (Number(figure.dataset.seq) >= newest) continue;
      try {
        await redraw(figure);
      } catch { /* the next refresh tries again */ }
    }
  }

  /** Refresh what costs the server more: every decision about a trial, and what it logged. */
  async function refreshParts() {
    const rests = PARTS_MS - (performance.now() - parted);
    if (rests > 0) {
      clearTimeout(refreshParts.timer);
      refreshParts.timer = setTimeout(refreshParts, rests);
      return;
    }
    parted = performance.now();
    for (const part of document.querySelectorAll("[data-part]")) {
      try {
        const answer = await fetch(part.dataset.part, { headers: { Accept: "text/html" } });
        if (!answer.ok) continue;
        exchange(new DOMParser().parseFromString(await answer.text(), "text/html"), [part]);
      } catch { /* the next refresh tries again */ }
    }
  }

  async function redraw(figure) {
    const text = await (await fetch(figure.dataset.url, { headers: { Accept: "text/html" } })).text();
    const made = new DOMParser().parseFromString(text, "text/html").getElementById(figure.id);
    if (!made || made.dataset.seq === figure.dataset.seq) return;
    figure.dataset.seq = made.dataset.seq;
    figure.replaceChildren(...made.children);
    window.hposvcCharts.mount(figure);
  }

  function follow() {
    const url = new URL(body.dataset.events, location.href);
    url.searchParams.set("since", shown);
    url.searchParams.set("follow", "true"); // an ended sweep may be extended
    const source = new EventSource(url);
    const heard = (event) => {
      newest = Math.max(newest, Number(event.lastEventId));
      if (newest > shown) later();
    };
    for (const kind of body.dataset.kinds.split(" ")) source.addEventListener(kind, heard);
    source.addEventListener("end", () => source.close());
  }

  function poll() {
    const again = () => setTimeout(look, Number(body.dataset.poll) * 1000);
    const look = async () => {
      if (!document.hidden && timer === null) await refresh();
      again();
    };
    again();
  }

  /* ---- buttons ---- */

  async function send(url, data, method = "POST") {
    const headers = { Accept: "application/json", "Content-Type": "application/json" };
    const csrf = document.querySelector("meta[name=csrf-token]").content;
    if (csrf) headers["X-CSRF-Token"] = csrf;
    const answer = await fetch(url, { method, headers, body: data && JSON.stringify(data) });
    const said = answer.status === 204 ? {} : await answer.json();
    if (!answer.ok) throw new Error(explain(said.errors));
    return said;
  }

  function explain(errors) {
    return errors.map((error) => [error.message, error.fix].filter(Boolean).join(" – ")).join("\n");
  }

  /** Return the values of a form as the body of a request, without those left empty. */
  function read(form) {
    const data = {};
    for (const field of form.querySelectorAll("[data-kind]")) {
      const text = field.value.trim();
      if (field.dataset.kind === "choice") {
        if (field.checked) data[field.name] = true;
      } else if (field.dataset.kind === "changes") {
        const changes = Object.fromEntries(text.split("\n").filter((line) => line.trim()).map(pair));
        if (Object.keys(changes).length) data[field.name] = changes;
      } else if (text) {
        data[field.name] = field.dataset.kind === "number" ? Number(text) : text;
      }
    }
    return data;
  }

  function pair(line) {
    const [key, ...rest] = line.split("=");
    if (!rest.length) throw new Error(`${line.trim()}: write KEY=VALUE`);
    const text = rest.join("=").trim();
    try {
      return [key.trim(), JSON.parse(text)];
    } catch {
      return [key.trim(), text];
    }
  }

  async function act(form) {
    const dialog = form.closest("dialog");
    const wrong = form.querySelector(".wrong");
    const button = form.querySelector("[type=submit]");
    wrong.hidden = true;
    button.disabled = true;
    try {
      const answer = await send(form.dataset.action, read(form));
      dialog.close();
      say(`${form.dataset.verb}: accepted`);
      if (!location.pathname.startsWith(`/sweeps/${answer.sweep}`)) {
        location.assign(`/sweeps/${answer.sweep}`);
        return;
      }
      refresh();
      await settle(form.dataset.verb, answer.operation);
    } catch (error) {
      wrong.textContent = error.message;
      wrong.hidden = false;
      if (!dialog.open) say(`${form.dataset.verb}: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  }

  /** Follow an operation to its end, and say how it went. */
  async function settle(verb, name) {
    for (let tries = 0; name && tries < 60; tries++) {
      const operation = await send(`/api/v1/operations/${name}`, null, "GET");
      if (operation.state === "failed") throw new Error(explain(operation.errors));
      if (operation.state === "done") {
        say(`${verb}: done`);
        refresh();
        return;
      }
      await new Promise((done) => setTimeout(done, 1000));
    }
  }

  document.addEventListener("click", async (event) => {
    const opener = event.target.closest("[data-dialog]");
    if (opener) document.getElementById(opener.dataset.dialog)?.showModal();
    if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
    if (event.target.matches("dialog")) event.target.close(); // its backdrop
    if (event.target.closest("[data-logout]")) {
      await send("/api/v1/logout");
      location.assign("/login");
    }
  });

  document.addEventListener("submit", (event) => {
    if (!event.target.dataset.action) return;
    event.preventDefault();
    act(event.target);
  });

  // charts.js mounts the figures below what htmx brings; here it brings a figure.
  document.addEventListener("htmx:load", (event) => {
    const { target } = event;
    if (target.matches?.("figure[data-chart]")) window.hposvcCharts.mountAll(target.parentElement);
  });
  document.addEventListener("htmx:responseError", (event) => {
    say(`The server answered ${event.detail.xhr.status}`);
  });
  document.addEventListener("visibilitychange", () => newest > shown && later());

  /** Show what needs this script. */
  function ready(root) {
    for (const part of root.querySelectorAll("[data-actions], [data-logout]")) part.hidden = false;
  }

  ready(document);
  for (const log of document.querySelectorAll("[data-tail]")) log.scrollTop = log.scrollHeight;
  if (body.dataset.events) follow();
  if (body.dataset.poll) poll();
  if (body.dataset.login) {
    // A link on another site's page does not bring the cookie of a session, which this page has.
    fetch("/api/v1/me").then((answer) => answer.ok && location.replace(body.dataset.login));
  }
})();
