/* The table of all trials: sorted, filtered, 25 rows at first. What is selected in parallel
   coordinates narrows it. Its data are columns: {title, values, number, hidden}. */
(() => {
  "use strict";

  const { element, kinds, number } = window.hposvcCharts;
  const ROWS = 25;

  kinds.trials = (holder, data) => {
    const { columns, best, order } = data;
    const names = columns[0].values;
    let [sorted, up, shown, query, selected] = [order?.column ?? 0, order?.up ?? true, ROWS, "", null];

    const search = element("input", {
      type: "search", placeholder: "Filter: t0012, failed, adam …", "aria-label": "Filter trials",
      oninput: () => { query = search.value.trim().toLowerCase(); shown = ROWS; fill(); },
    });
    const said = element("span", { role: "status" });
    const head = element("tr");
    const body = element("tbody");
    const more = element("button", { type: "button", onclick: () => { shown += 5 * ROWS; fill(); } });
    const scroll = element(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "All trials" },
      element("table", {}, element("thead", {}, head), body),
    );
    holder.append(element("div", { class: "tools" }, search, said), scroll, more);

    columns.forEach((column, i) => {
      const button = element("button", { type: "button", onclick: () => sort(i) }, column.title);
      head.append(element("th", { scope: "col", class: column.number && "number" }, button));
    });

    const text = (column, row) => (column.values[row] == null ? "" : number(column.values[row]));
    const lines = names.map((_, row) =>
      columns.map((column) => text(column, row)).join("\u0001").toLowerCase());

    function sort(i) {
      up = sorted === i ? !up : true;
      sorted = i;
      fill();
    }

    /** Compare two rows; those without a value come last, whichever way is up. */
    function compare(a, b) {
      const [left, right] = [columns[sorted].values[a], columns[sorted].values[b]];
      const [noLeft, noRight] = [left == null || left === "", right == null || right === ""];
      if (noLeft || noRight) return noLeft - noRight;
      const order = typeof left === "number" && typeof right === "number"
        ? left - right : String(left).localeCompare(String(right), undefined, { numeric: true });
      return up ? order : -order;
    }

    function fill() {
      [...head.children].forEach((cell, i) => {
        if (i === sorted) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
        else cell.removeAttribute("aria-sort");
      });
      let rows = [...names.keys()];
      if (selected) rows = rows.filter((row) => selected.has(names[row]));
      for (const word of query.split(/\s+/).filter(Boolean)) {
        rows = rows.filter((row) => lines[row].includes(word));
      }
      rows.sort(compare);
      const cells = (row) => columns.map((column, i) =>
        element(i ? "td" : "th",
          { class: [column.number && "number", column.wrap && "wrap"].filter(Boolean).join(" ") || null,
            scope: i ? null : "row" },
          text(column, row)));
      body.replaceChildren(...rows.slice(0, shown).map((row) =>
        element("tr", { class: best.includes(names[row]) && "is-best" }, ...cells(row))));
      const narrowed = rows.length < names.length;
      said.textContent = narrowed ? `${rows.length} of ${names.length} trials` : `${names.length} trials`;
      more.hidden = rows.length <= shown;
      more.textContent = `Show more (${rows.length - shown} left)`;
    }

    const section = holder.closest("[data-sweep]") ?? document;
    const select = (event) => { selected = event.detail.trials; shown = ROWS; fill(); };
    section.addEventListener("hposvc:select", select);
    fill();
  };
})();
