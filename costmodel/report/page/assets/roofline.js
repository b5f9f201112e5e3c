/* Kernels on the roofline: arithmetic intensity across, attained arithmetic up, both logarithmic. A kernel without
   counted arithmetic lies at the left edge, as far below the bandwidth line as its traffic is below the bandwidth. */
const ROOF = { left: 52, right: 16, top: 26, bottom: 42, height: 380 };

class RooflineChart {
  constructor(stage, model, reveal) {
    this.model = model;
    this.reveal = reveal;
    this.modes = model.modes.map(({ name }) => name).filter((name) => model.kernels[name]?.name.length);
    this.mode = this.modes.includes(model.best) ? model.best : this.modes[0];
    this.at = -1;
    this.plot = svg("svg", { class: "roofline", tabindex: "0", role: "application", "aria-roledescription": "scatter chart" });
    this.status = html("p", { class: "status", role: "status", "aria-live": "polite" });
    const modes = choice("Mode", this.modes.map((name) => ({ value: name, title: name })), this.mode, (name) => {
      this.mode = name;
      this.at = -1;
      this.draw();
    });
    const legend = html("ul", { class: "legend" }, [["compute"], ["memory"], ["launch", "launch: too small to fill the GPU"]].map(([name, words]) => html("li", {}, html("span", { class: `bound ${name}` }, words || name))), html("li", { class: "soft" }, "hollow: extrapolated"));
    stage.append(html("div", { class: "controls" }, modes, legend), this.plot, this.status);
    this.plot.addEventListener("pointermove", (event) => this.hover(event));
    this.plot.addEventListener("pointerleave", () => {
      hideTooltip();
      this.mark(-1);
    });
    this.plot.addEventListener("click", () => this.at >= 0 && this.reveal(this.points[this.at].node));
    this.plot.addEventListener("keydown", (event) => this.key(event));
    drawnToWidth(stage, (width) => {
      this.width = width;
      this.draw();
    });
  }

  /* Equal kernels are one point; the largest are kept where there are too many. */
  collect() {
    const kernels = this.model.kernels[this.mode];
    const found = new Map();
    kernels.device.forEach((us, index) => {
      if (!us || !(kernels.bytes[index] || kernels.flops[index])) return;
      const key = [kernels.name[index], kernels.flops[index], kernels.bytes[index], us].join();
      const same = found.get(key);
      if (same) same.count += 1;
      else found.set(key, { index, node: kernels.node[index], count: 1, us, flops: kernels.flops[index] || 0, bytes: kernels.bytes[index] || 1, bound: this.model.words[kernels.bound[index]], unsure: kernels.extra[index] });
    });
    const all = [...found.values()].sort((one, other) => other.us * other.count - one.us * one.count);
    this.total = all.reduce((sum, point) => sum + point.us * point.count, 0);
    this.cut = all.length - Math.min(all.length, this.model.mostPoints);
    return all.slice(0, this.model.mostPoints);
  }

  draw() {
    if (!this.width) return;
    this.points = this.collect();
    const { ceilings } = this.model;
    const counted = this.points.filter(({ flops }) => flops > 0);
    const intensities = counted.map(({ flops, bytes }) => flops / bytes);
    const peaks = ceilings ? ceilings.peaks.map(({ peak }) => peak) : [];
    const ridges = ceilings ? peaks.map((peak) => peak / ceilings.bytes) : [];
    this.x = { low: 10 ** Math.floor(Math.log10(Math.min(1, ...intensities))), high: 10 ** Math.ceil(Math.log10(Math.max(10, ...intensities, ...ridges.map((ridge) => ridge * 2)))) };
    for (const point of this.points) {
      point.intensity = point.flops > 0 ? point.flops / point.bytes : this.x.low;
      point.rate = point.flops > 0 ? point.flops / point.us : (point.bytes / point.us) * this.x.low;
    }
    const rates = this.points.map(({ rate }) => rate).filter((rate) => rate > 0);
    this.y = { low: Math.min(...rates, ...peaks) / 1.6, high: Math.max(...rates, ...peaks) * 1.8 };
    fill(this.plot, { viewBox: `0 0 ${this.width} ${ROOF.height}`, height: ROOF.height, "aria-label": `Roofline of ${this.points.length} kernels in ${this.mode}. Arrow keys walk them by device time.` }, []);
    this.plot.replaceChildren(...this.axes(), ...this.roofs(), ...this.marks());
    this.status.textContent = this.cut ? `${this.cut.toLocaleString("en-US")} kernels of least device time are not drawn.` : "";
  }

  px(intensity) {
    const share = Math.log(intensity / this.x.low) / Math.log(this.x.high / this.x.low);
    return ROOF.left + share * (this.width - ROOF.left - ROOF.right);
  }

  py(rate) {
    const share = Math.log(rate / this.y.low) / Math.log(this.y.high / this.y.low);
    return ROOF.height - ROOF.bottom - share * (ROOF.height - ROOF.top - ROOF.bottom);
  }

  axes() {
    const bottom = ROOF.height - ROOF.bottom;
    const parts = [];
    const powers = (low, high) => Array.from({ length: Math.floor(Math.log10(high) + 1e-9) - Math.ceil(Math.log10(low) - 1e-9) + 1 }, (_, index) => 10 ** (Math.ceil(Math.log10(low) - 1e-9) + index));
    for (const at of powers(this.x.low, this.x.high)) {
      parts.push(svg("line", { class: "grid", x1: this.px(at), x2: this.px(at), y1: ROOF.top, y2: bottom }), text(+at.toPrecision(3), { class: "tick", x: this.px(at), y: bottom + 16, "text-anchor": "middle" }));
    }
    for (const at of powers(this.y.low, this.y.high)) {
      parts.push(svg("line", { class: "grid", x1: ROOF.left, x2: this.width - ROOF.right, y1: this.py(at), y2: this.py(at) }), text(+(at / 1e6).toPrecision(3), { class: "tick", x: ROOF.left - 6, y: this.py(at) + 4, "text-anchor": "end" }));
    }
    parts.push(text("FLOP per byte", { class: "tick axis", x: this.width - ROOF.right, y: ROOF.height - 6, "text-anchor": "end" }), text("TFLOP/s", { class: "tick axis", x: 0, y: 14 }));
    parts.push(text("← no FLOPs", { class: "tick", x: ROOF.left, y: ROOF.height - 6 }));
    return parts;
  }

  roofs() {
    const { ceilings } = this.model;
    if (!ceilings) return [];
    const peak = Math.max(...ceilings.peaks.map((one) => one.peak), 0) || this.y.high;
    const least = Math.max(this.x.low, this.y.low / ceilings.bytes);
    const ridge = Math.min(this.x.high, peak / ceilings.bytes);
    const parts = [svg("path", { class: "roof", d: `M${this.px(least)} ${this.py(least * ceilings.bytes)}L${this.px(ridge)} ${this.py(ridge * ceilings.bytes)}` })];
    for (const { name, peak: height } of ceilings.peaks) {
      parts.push(svg("path", { class: "roof", d: `M${this.px(Math.max(this.x.low, height / ceilings.bytes))} ${this.py(height)}H${this.width - ROOF.right}` }));
      parts.push(text(`${name.replace(".", " ")} ${digits(height / 1e6)} TFLOP/s`, { class: "roof-name", x: this.width - ROOF.right, y: this.py(height) - 5, "text-anchor": "end" }));
    }
    const middle = Math.sqrt(least * ridge);
    const tilt = (Math.atan2(this.py(ridge * ceilings.bytes) - this.py(least * ceilings.bytes), this.px(ridge) - this.px(least)) * 180) / Math.PI;
    const [x, y] = [this.px(middle), this.py(middle * ceilings.bytes) - 6];
    parts.push(text(`${digits(ceilings.bytes / 1e6)} TB/s`, { class: "roof-name", x, y, "text-anchor": "middle", transform: `rotate(${tilt.toFixed(1)} ${x} ${y})` }));
    return parts;
  }

  marks() {
    const largest = Math.max(...this.points.map(({ us, count }) => us * count), 1e-9);
    return this.points.map((point, index) => {
      point.px = this.px(point.intensity);
      point.py = this.py(Math.max(point.rate, this.y.low));
      point.r = 2.5 + 13 * Math.sqrt((point.us * point.count) / largest);
      return svg("circle", { class: `point ${point.bound}${point.unsure ? " unsure" : ""}`, "data-point": index, cx: point.px.toFixed(1), cy: point.py.toFixed(1), r: point.r.toFixed(1) });
    });
  }

  hover(event) {
    let best = -1;
    let least = 30 ** 2;
    this.points.forEach((point, index) => {
      const far = (point.px - event.offsetX) ** 2 + (point.py - event.offsetY) ** 2;
      if (far < least) [best, least] = [index, far];
    });
    this.mark(best);
    if (best < 0) hideTooltip();
    else showTooltip(this.facts(best), event.clientX, event.clientY);
  }

  facts(index) {
    const point = this.points[index];
    const reached = point.flops ? `${digits(point.rate / 1e6)} TFLOP/s at ${digits(point.intensity)} FLOP per byte` : `${digits(point.bytes / point.us / 1e6)} TB/s`;
    return [...this.model.kernelFacts(this.mode, point.index), point.count > 1 ? `${point.count} equal kernels` : "", reached, point.bound && `bound by ${point.bound}`, `${percent((point.us * point.count) / this.total)} of the device time`].filter(Boolean);
  }

  mark(index) {
    this.plot.querySelector(".point.hot")?.classList.remove("hot");
    this.at = index;
    if (index >= 0) this.plot.querySelector(`[data-point="${index}"]`).classList.add("hot");
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && this.at >= 0) this.reveal(this.points[this.at].node);
    if (!step || !this.points.length) return;
    event.preventDefault();
    this.mark((this.at + step + this.points.length) % this.points.length);
    this.status.textContent = this.facts(this.at).join(". ");
  }
}
