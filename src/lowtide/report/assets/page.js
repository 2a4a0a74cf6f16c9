"use strict";
// What the page does beyond standing there: shows what is under the pointer, sorts tables, turns light and dark.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

  // The same text as everywhere else in Lowtide: four significant digits at most.
  function bytes(n) {
    let size = n, unit = 0;
    while (Math.abs(size) >= 1023.95 && unit < units.length - 1) { size /= 1024; unit += 1; }
    return unit ? `${size.toFixed(Math.abs(size) < 100 ? 2 : 1)} ${units[unit]}` : `${n} B`;
  }

  function place(x, y) {
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = `${x + 18 + w > innerWidth ? Math.max(4, x - 18 - w) : x + 18}px`;
    tip.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - h - 6))}px`;
  }

  function element(name, text, parent, classes) {
    const e = document.createElement(name);
    if (text) e.textContent = text;
    if (classes) e.className = classes;
    parent.append(e);
    return e;
  }

  // The timeline.
  const t = data.timeline, svg = document.querySelector("svg.timeline");
  const cursor = svg.querySelector(".cursor"), n = t.total.length;
  let column = -1;

  function show(k, x, y) {
    column = k;
    const middle = (t.edges[k] + t.edges[k + 1]) / 2;
    cursor.setAttribute("x1", middle);
    cursor.setAttribute("x2", middle);
    cursor.classList.add("on");
    tip.replaceChildren();
    element("b", data.names[t.where[k]] === t.phase[k] ? t.phase[k] : `${t.phase[k]} of ${data.names[t.where[k]]}`, tip);
    element("div", `${data.names[t.op[k]]}${t.runs[k] ? `, after running ${t.runs[k]} op${t.runs[k] > 1 ? "s" : ""} again` : ""}`, tip, "soft");
    const table = element("table", "", tip);
    const row = (name, size, colour) => {
      const tr = element("tr", "", table), td = element("td", "", tr, "text");
      if (colour) element("span", "", td, `swatch ${colour}-colour`);
      td.append(name);
      element("td", bytes(size), tr);
      return tr;
    };
    for (const layer of [...t.layers].reverse()) if (layer.bytes[k]) row(layer.name, layer.bytes[k], layer.colour);
    row("all", t.total[k]).style.fontWeight = 600;
    row("without a plan", t.baseline[k]);
    tip.dataset.moment = t.moment[k];
    const box = svg.getBoundingClientRect();
    place(x ?? box.left + middle * box.width / t.width, y ?? box.top + box.height / 3);
  }

  function hide() {
    column = -1;
    tip.hidden = true;
    cursor.classList.remove("on");
  }

  if (n) {
    svg.addEventListener("pointermove", (e) => {
      const box = svg.getBoundingClientRect();
      const x = (e.clientX - box.left) * t.width / box.width;
      if (x < t.edges[0] || x >= t.edges[n]) return hide();
      show(t.edges.findLastIndex((edge) => edge <= x), e.clientX, e.clientY);
    });
    svg.addEventListener("pointerleave", hide);
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (e) => {
      const go = { ArrowLeft: Math.max(0, column - 1), ArrowRight: Math.min(n - 1, column + 1), Home: 0, End: n - 1, p: t.peak }[e.key];
      if (e.key === "Escape") return hide();
      if (go === undefined) return;
      e.preventDefault();
      show(go);
    });
  }

  // Everything that has something to say.
  for (const e of document.querySelectorAll("[data-tip]")) {
    e.addEventListener("pointermove", (m) => { tip.textContent = e.dataset.tip; place(m.clientX, m.clientY); });
    e.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  // Tables: a click on a heading sorts, a second one the other way round, a third as it was.
  for (const table of document.querySelectorAll("table.sortable")) {
    const order = new Map([...table.querySelectorAll("tbody tr")].map((row, k) => [row, k]));
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((th, c) => th.firstElementChild.addEventListener("click", () => {
      const next = { none: "descending", descending: "ascending", ascending: "none" }[th.getAttribute("aria-sort") || "none"];
      for (const other of heads) other.removeAttribute("aria-sort");
      if (next !== "none") th.setAttribute("aria-sort", next);
      const key = (row) => { const v = row.cells[c].dataset.value; return v === undefined ? row.cells[c].textContent : Number(v); };
      const compare = (a, b) => { const x = key(a), y = key(b); return x < y ? -1 : x > y ? 1 : 0; };
      for (const body of table.tBodies) {
        const rows = [...body.rows].sort((a, b) =>
          next === "none" ? order.get(a) - order.get(b) : (next === "ascending" ? 1 : -1) * compare(a, b) || order.get(a) - order.get(b));
        body.append(...rows);
      }
    }));
  }

  // How deep into the network the table looks.
  const depth = [...document.querySelectorAll("[data-depth-button]")];
  for (const b of depth) b.addEventListener("click", () => {
    for (const other of depth) other.setAttribute("aria-pressed", String(other === b));
    for (const body of document.querySelectorAll("tbody[data-depth]")) body.hidden = body.dataset.depth !== b.dataset.depthButton;
  });

  // Light and dark.
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
})();
