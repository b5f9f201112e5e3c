/* The module tree as a table: rows are made when they are shown; sorted, filtered, collapsed, walked by keys. */
const ROWS_AT_ONCE = 300;
const OPEN_AT_FIRST = 40;
const COLUMNS = [
  { key: "label", title: "Module" },
  { key: "shape", title: "Output", detail: true },
  { key: "params", title: "Params", figure: true, detail: true },
  { key: "flops", title: "FLOPs", figure: true, detail: true },
  { key: "eager", title: "Eager", figure: true },
  { key: "compiled", title: "Compiled", figure: true },
  { key: "speedup", title: "Speedup", figure: true },
  { key: "bound", title: "Bound by", detail: true },
  { key: "why", title: "Why", detail: true, plain: true },
];
const WORDS = new Set(["label", "name", "type", "kind", "shape", "bound", "why"]);

class TreeTable {
  constructor(stage, model, id) {
    this.model = model;
    this.id = id;
    this.open = new Set();
    this.sort = { key: null, down: true };
    this.filter = { words: "", bound: "", which: "" };
    this.showFrom(0);
    this.focus = 0;
    this.openFirstLevels();
    this.head = html("tr", { role: "row" }, COLUMNS.map((column) => this.heading(column)));
    this.body = html("tbody");
    const grid = html("table", { class: "tree", role: "treegrid", "aria-label": "Modules" }, html("thead", {}, this.head), this.body);
    grid.addEventListener("keydown", (event) => this.key(event));
    this.status = html("p", { class: "status", role: "status", "aria-live": "polite" });
    stage.append(this.controls(), html("div", { class: "scroll" }, grid), this.status);
    this.draw();
  }

  openFirstLevels() {
    let shown = 1;
    let level = [0];
    while (level.length) {
      const below = level.flatMap((node) => this.model.children[node]);
      if (!below.length || (shown > 1 && shown + below.length > OPEN_AT_FIRST)) break;
      for (const node of level) if (this.model.children[node].length) this.open.add(node);
      shown += below.length;
      level = below;
    }
  }

  heading(column) {
    const attributes = { scope: "col", role: "columnheader", class: [column.figure && "figure", column.detail && "detail"].filter(Boolean).join(" ") || null };
    if (column.plain) return html("th", attributes, column.title);
    const button = html("button", { type: "button", onclick: () => this.sortBy(column) }, column.title);
    return html("th", { ...attributes, "aria-sort": "none", "data-key": column.key }, button);
  }

  controls() {
    const search = html("input", { type: "search", placeholder: "Filter modules", "aria-label": "Filter modules by name or type", oninput: (event) => this.narrow({ words: event.target.value.toLowerCase() }) });
    const bounds = [...new Set(this.model.tree.bound)].map((index) => this.model.words[index]).filter(Boolean).sort();
    const bound = html("select", { "aria-label": "Bound by", onchange: (event) => this.narrow({ bound: event.target.value }) },
      html("option", { value: "" }, "any bound"), bounds.map((name) => html("option", { value: name }, `${name}-bound`)));
    const which = html("select", { "aria-label": "Which modules", onchange: (event) => this.narrow({ which: event.target.value }) },
      [["", "all modules"], ["slower", "slower compiled"], ["faster", "faster compiled"], ["extrapolated", "extrapolated"]].map(([value, title]) => html("option", { value }, title)));
    const all = html("button", { type: "button", onclick: () => this.setAll(true) }, "Expand all");
    const none = html("button", { type: "button", onclick: () => this.setAll(false) }, "Collapse all");
    return html("div", { class: "controls" }, search, bound, which, all, none);
  }

  /* Rows from one on, as many as are made at once. */
  showFrom(first) {
    this.first = first;
    this.last = first + ROWS_AT_ONCE;
  }

  setAll(open) {
    this.open = new Set(open ? this.model.children.flatMap((below, node) => (below.length ? [node] : [])) : [0]);
    this.showFrom(0);
    this.draw();
  }

  narrow(change) {
    Object.assign(this.filter, change);
    this.showFrom(0);
    this.draw();
  }

  /* Largest first, then smallest first, then the order of execution again. */
  sortBy(column) {
    const first = Boolean(column.figure);
    if (this.sort.key !== column.key) this.sort = { key: column.key, down: first };
    else if (this.sort.down === first) this.sort = { key: column.key, down: !first };
    else this.sort = { key: null, down: true };
    for (const heading of this.head.children) {
      if (!heading.dataset.key) continue;
      const chosen = heading.dataset.key === this.sort.key;
      heading.setAttribute("aria-sort", chosen ? (this.sort.down ? "descending" : "ascending") : "none");
    }
    this.draw();
  }

  value(node) {
    const { key } = this.sort;
    return WORDS.has(key) ? this.model.word(key, node) : this.model.tree[key][node];
  }

  ordered(nodes) {
    if (!this.sort.key) return nodes;
    const sign = this.sort.down ? -1 : 1;
    return [...nodes].sort((one, other) => {
      const [a, b] = [this.value(one), this.value(other)];
      if (typeof a === "string") return sign * a.localeCompare(b, "en", { numeric: true });
      if (!KNOWN(a) || !KNOWN(b)) return KNOWN(b) - KNOWN(a);
      return sign * (a - b);
    });
  }

  isFiltered() {
    return Boolean(this.filter.words || this.filter.bound || this.filter.which);
  }

  matches(node) {
    const { model, filter } = this;
    const { tree } = model;
    if (filter.words && !["name", "label", "type", "kind"].some((column) => model.word(column, node).toLowerCase().includes(filter.words))) return false;
    if (filter.bound && model.word("bound", node) !== filter.bound) return false;
    if (filter.which === "slower") return KNOWN(tree.speedup[node]) && tree.speedup[node] < 1;
    if (filter.which === "faster") return KNOWN(tree.speedup[node]) && tree.speedup[node] > 1;
    if (filter.which === "extrapolated") return tree.extra[node] > 0;
    return true;
  }

  /* Nodes to show, in order: those in open modules, or those that match a filter with the modules around them. */
  visible() {
    const { model } = this;
    const filtered = this.isFiltered();
    const kept = filtered ? new Set() : null;
    let found = 0;
    if (filtered) {
      for (let node = 0; node < model.size; node += 1) {
        if (!this.matches(node)) continue;
        found += 1;
        for (let at = node; at >= 0 && !kept.has(at); at = model.tree.parent[at]) kept.add(at);
      }
    }
    const rows = [];
    const pending = filtered && !kept.has(0) ? [] : [0];
    while (pending.length) {
      const node = pending.pop();
      rows.push(node);
      if (!filtered && !this.open.has(node)) continue;
      const below = this.ordered(model.children[node].filter((child) => !filtered || kept.has(child)));
      for (let index = below.length - 1; index >= 0; index -= 1) pending.push(below[index]);
    }
    return { rows, found };
  }

  draw() {
    const { rows, found } = this.visible();
    if (!rows.includes(this.focus)) this.focus = rows[0];
    this.body.replaceChildren(...rows.slice(this.first, this.last).map((node) => this.row(node)));
    if (this.first > 0) this.body.prepend(this.further(this.first, "earlier", () => (this.first = Math.max(0, this.first - ROWS_AT_ONCE))));
    const rest = rows.length - this.last;
    if (rest > 0) this.body.append(this.further(rest, "more", () => (this.last += ROWS_AT_ONCE)));
    const total = this.model.size.toLocaleString("en-US");
    this.status.textContent = this.isFiltered() ? `${found.toLocaleString("en-US")} of ${total} modules match` : `${rows.length.toLocaleString("en-US")} of ${total} modules shown`;
  }

  further(count, which, grow) {
    const button = html("button", { type: "button", onclick: () => {
      grow();
      this.draw();
    } }, `Show ${Math.min(count, ROWS_AT_ONCE)} ${which} of ${count.toLocaleString("en-US")}`);
    return html("tr", { class: "more" }, html("td", { colspan: COLUMNS.length }, button));
  }

  row(node) {
    const { model } = this;
    const { tree } = model;
    const branches = model.children[node].length > 0;
    const open = this.isFiltered() || this.open.has(node);
    const toggle = branches
      ? html("button", { type: "button", class: "twist", tabindex: "-1", "aria-label": `${open ? "Collapse" : "Expand"} ${model.title(node)}`, onclick: () => this.toggle(node) })
      : html("span", { class: "twist", "aria-hidden": "true" });
    const count = tree.count[node] > 1 ? html("span", { class: "count" }, ` ×${tree.count[node]}`) : null;
    const what = model.word("type", node) || model.word("kind", node);
    const kind = html("span", { class: "type" }, what === model.word("label", node) ? "" : what);
    const beneath = [model.word("shape", node), model.word("bound", node) && `${model.word("bound", node)}-bound`, model.word("why", node)].filter(Boolean).join(" · ");
    const name = html("td", { class: "module" }, html("div", { class: "indent" }, toggle, html("span", { class: "name" }, model.word("label", node), count, " ", kind)));
        const cells = [
      name,
      html("td", { class: "detail shape" }, model.word("shape", node)),
      html("td", { class: "figure detail" }, large(tree.params[node])),
      html("td", { class: "figure detail" }, large(tree.flops[node])),
      this.time(node, "eager"),
      this.time(node, "compiled"),
      this.speedup(node),
      html("td", { class: "detail" }, this.bound(model.word("bound", node))),
      html("td", { class: "detail why" }, model.word("why", node), tree.extra[node] > 0 ? html("span", { class: "tag doubt" }, `${percent(tree.extra[node])} extrapolated`) : null),
      html("td", { class: "beneath" }, beneath),
    ];
    for (const cell of cells) cell.setAttribute("role", "gridcell");
    const attributes = { role: "row", id: `${this.id}-m${node}`, "data-node": node, "aria-level": model.depth[node] + 1, tabindex: node === this.focus ? "0" : "-1" };
    if (branches) attributes["aria-expanded"] = String(open);
    const row = html("tr", attributes, cells);
    row.style.setProperty("--depth", model.depth[node]);
    row.addEventListener("focus", () => this.rove(node));
    return row;
  }

  time(node, column) {
    const value = this.model.tree[column][node];
    const whole = Math.max(this.model.tree.eager[0] || 0, this.model.tree.compiled[0] || 0);
    const bar = html("span", { class: `share ${column}`, "aria-hidden": "true" });
    bar.style.width = `${KNOWN(value) && whole ? (100 * value) / whole : 0}%`;
    return html("td", { class: "figure time", title: whole && KNOWN(value) ? `${percent(value / whole)} of the model's eager time` : null }, microseconds(value), bar);
  }

  speedup(node) {
    const { tree } = this.model;
    if (!KNOWN(tree.speedup[node])) return html("td", { class: "figure" }, html("span", { class: "chip" }, "-"));
    const chip = html("span", { class: "chip", title: KNOWN(tree.low[node]) ? `90 % interval ${tree.low[node].toFixed(2)}–${tree.high[node].toFixed(2)}` : null }, ratio(tree.speedup[node]));
    chip.style.background = speedupColor(tree.speedup[node]);
    return html("td", { class: "figure" }, chip);
  }

  bound(name) {
    return name ? html("span", { class: `bound ${name}` }, name) : "";
  }

  toggle(node, open = !this.open.has(node)) {
    if (open) this.open.add(node);
    else this.open.delete(node);
    this.focus = node;
    this.draw();
    this.focused()?.focus();
  }

  focused() {
    return this.body.querySelector(`[data-node="${this.focus}"]`);
  }

  rove(node) {
    this.focused()?.setAttribute("tabindex", "-1");
    this.focus = node;
    this.focused()?.setAttribute("tabindex", "0");
  }

  key(event) {
    const row = event.target.closest("tr[data-node]");
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const node = Number(row.dataset.node);
    const rows = [...this.body.querySelectorAll("tr[data-node]")];
    const at = rows.indexOf(row);
    const expandable = this.model.children[node].length > 0 && !this.isFiltered();
    const moves = {
      ArrowDown: () => rows[at + 1]?.focus(),
      ArrowUp: () => rows[at - 1]?.focus(),
      Home: () => rows[0]?.focus(),
      End: () => rows.at(-1)?.focus(),
      ArrowRight: () => (expandable && !this.open.has(node) ? this.toggle(node, true) : rows[at + 1]?.focus()),
      ArrowLeft: () => (expandable && this.open.has(node) ? this.toggle(node, false) : this.body.querySelector(`[data-node="${this.model.tree.parent[node]}"]`)?.focus()),
      Enter: () => expandable && this.toggle(node),
    };
    if (!moves[event.key] || (event.key === "Enter" && event.target !== row)) return;
    event.preventDefault();
    moves[event.key]();
  }

  /* Shows the row of a node wherever it is, and goes there. */
  reveal(node) {
    Object.assign(this.filter, { words: "", bound: "", which: "" });
    for (const field of this.body.closest("section").querySelectorAll("input, select")) field.value = "";
    for (let at = this.model.tree.parent[node]; at >= 0; at = this.model.tree.parent[at]) this.open.add(at);
    const place = this.visible().rows.indexOf(node);
    if (place < this.first || place >= this.last) this.showFrom(Math.max(0, place - ROWS_AT_ONCE / 2));
    this.focus = node;
    this.draw();
    const row = this.focused();
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
    row.classList.add("found");
  }
}
