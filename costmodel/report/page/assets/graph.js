/* The drawn graph: colours follow the theme, and a unit leads to its row. */
class GraphView {
  constructor(section, model, reveal) {
    const places = new Map();
    for (let node = 0; node < model.size; node += 1) places.set(model.word("name", node), node);
    this.box = section.querySelector(".drawing");
    if (!this.box) return;
    for (const unit of this.box.querySelectorAll("[data-layer]")) {
      if (unit.dataset.speedup) unit.querySelector("rect").style.fill = speedupColor(Number(unit.dataset.speedup));
      const node = places.get(unit.dataset.layer);
      if (node !== undefined) unit.addEventListener("click", () => reveal(node));
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
