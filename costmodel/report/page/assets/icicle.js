/* Time by module as two icicles on one scale: eager above, compiled below; a click enters a module. */
const DEEP = 22;
const MOST_LEVELS = 9;

class Icicle {
  constructor(stage, model, reveal) {
    this.model = model;
    this.reveal = reveal;
    this.root = 0;
    this.at = 0;
    this.path = html("div", { class: "path" });
    this.plot = svg("svg", { class: "icicle", tabindex: "0", role: "application", "aria-roledescription": "icicle chart", "aria-label": "Time by module. Arrow keys walk the modules, Enter enters one, Escape leaves it." });
    this.status = html("p", { class: "status", role: "status", "aria-live": "polite" });
    stage.append(this.path, this.plot, this.status);
    this.plot.addEventListener("keydown", (event) => this.key(event));
    this.plot.addEventListener("pointerleave", () => {
      hideTooltip();
      this.mark(null);
    });
    drawnToWidth(stage, (width) => {
      this.width = width;
      this.draw();
    });
  }

  draw() {
    const { model, root } = this;
    if (!this.width) return;
    const whole = Math.max(model.tree.eager[root] || 0, model.tree.compiled[root] || 0);
    this.skipped = 0;
    const eager = this.half("eager", whole, 20);
    const compiled = this.half("compiled", whole, 20 + eager.height + 34);
    const height = 20 + eager.height + 34 + compiled.height + 4;
    fill(this.plot, { viewBox: `0 0 ${this.width} ${height}`, height }, []);
    this.plot.replaceChildren(
      text(`eager ${microseconds(model.tree.eager[root])}`, { class: "mode-name", x: 0, y: 13 }), ...eager.shapes,
      text(`compiled ${microseconds(model.tree.compiled[root])}`, { class: "mode-name", x: 0, y: 20 + eager.height + 27 }), ...compiled.shapes);
    this.drawPath();
    this.status.textContent = this.skipped ? `${this.skipped.toLocaleString("en-US")} modules narrower than half a pixel or deeper than ${MOST_LEVELS} levels are not drawn; enter a module to see them.` : "";
  }

  half(column, whole, top) {
    const { model, root } = this;
    const shapes = [];
    let deepest = 0;
    const place = (node, x) => {
      const level = model.depth[node] - model.depth[root];
      const width = whole ? ((model.tree[column][node] || 0) / whole) * this.width : 0;
      if (width < 0.5 || level >= MOST_LEVELS) {
        this.skipped += column === "eager" ? model.end[node] - node : 0;
        return width;
      }
      deepest = Math.max(deepest, level);
      shapes.push(this.box(node, x, top + level * DEEP, width));
      let inner = x;
      for (const child of model.children[node]) inner += place(child, inner);
      return width;
    };
    place(root, 0);
    return { shapes, height: (deepest + 1) * DEEP };
  }

  box(node, x, y, width) {
    const { model } = this;
    const label = fitted(model.word("label", node), width - 8);
    const shape = svg("rect", { x: x.toFixed(2), y, width: Math.max(0.5, width - 0.8).toFixed(2), height: DEEP - 1.5, rx: width > 6 ? 2 : 0 });
    shape.style.fill = speedupColor(model.tree.speedup[node]);
    const group = svg("g", { class: "box", "data-node": node }, shape, label ? text(label, { x: x + 4, y: y + 15 }) : null);
    group.addEventListener("pointermove", (event) => {
      this.mark(node);
      showTooltip(model.facts(node), event.clientX, event.clientY);
    });
    group.addEventListener("click", () => this.enter(node));
    return group;
  }

  mark(node) {
    for (const group of this.plot.querySelectorAll(".box.hot")) group.classList.remove("hot");
    if (node === null) return;
    for (const group of this.plot.querySelectorAll(`[data-node="${node}"]`)) group.classList.add("hot");
  }

  /* A module without modules inside is shown in the table instead. */
  enter(node) {
    hideTooltip();
    if (!this.model.children[node].length) {
      this.reveal(node);
      return;
    }
    this.root = node === this.root ? Math.max(0, this.model.tree.parent[node]) : node;
    this.at = this.root;
    this.draw();
  }

  drawPath() {
    const steps = [];
    for (let node = this.root; node >= 0; node = this.model.tree.parent[node]) steps.unshift(node);
    this.path.replaceChildren(...steps.map((node) => html("button", { type: "button", "aria-current": node === this.root ? "true" : null, onclick: () => {
      this.root = node;
      this.at = node;
      this.draw();
    } }, this.model.word("label", node))));
  }

  key(event) {
    const { model } = this;
    const parent = model.tree.parent[this.at];
    const beside = parent >= 0 ? model.children[parent] : [this.at];
    const index = beside.indexOf(this.at);
    const moves = {
      ArrowDown: model.children[this.at][0],
      ArrowUp: this.at === this.root ? undefined : parent,
      ArrowRight: this.at === this.root ? undefined : beside[index + 1],
      ArrowLeft: this.at === this.root ? undefined : beside[index - 1],
    };
    if (event.key === "Enter") this.enter(this.at);
    else if (event.key === "Escape") this.enter(this.root);
    else if (!(event.key in moves)) return;
    event.preventDefault();
    if (moves[event.key] !== undefined) this.at = moves[event.key];
    this.mark(this.at);
    this.status.textContent = model.facts(this.at).join(". ");
  }
}
