/* The drawn graph: colours follow the theme, and a unit leads to its row. */
class GraphView {
  constructor(section, model, reveal) {
    const places = new Map(Object.entries(model.collapsed));
    for (let node = 0; node < model.size; node += 1) places.set(model.word("name", node), node);
    this.box = section.querySelector(".drawing");
    if (!this.box) return;
    for (const unit of this.box.querySelectorAll("[data-layer]")) {
      if (unit.dataset.speedup) unit.querySelector("rect").style.fill = speedupColor(Number(unit.dataset.speedup));
      let path = unit.dataset.layer;
      while (path && !places.has(path)) path = path.slice(0, Math.max(0, path.lastIndexOf(".")));
      unit.addEventListener("click", () => reveal(places.get(path) ?? 0));
    }
    const drawing = this.box.querySelector("svg");
    const width = Number(drawing.getAttribute("width"));
    const sizes = [{ value: "", title: "Fit width" }, { value: "1", title: "Full size" }];
    const sized = (value) => {
      const scale = value ? 1 : Math.min(1, this.box.clientWidth / width);
      drawing.style.width = `${width * scale}px`;
      drawing.style.height = "auto";
    };
    this.box.before(html("div", { class: "controls" }, choice("Size", sizes, "1", sized)));
    sized("1");
    this.box.scrollLeft = (this.box.scrollWidth - this.box.clientWidth) / 2;
  }
}
