/* The call in every mode on one time axis: host lane, device lane, stages of the model. Kernels narrower than a pixel
   are drawn together, so that the number of shapes depends on the width alone. */
const LANE = 20;
const LANE_GAP = 3;
const MODE_GAP = 34;
const AXIS = 26;
const GUTTER = 50;

class Timeline {
  constructor(stage, model, reveal) {
    this.model = model;
    this.reveal = reveal;
    this.modes = model.modes.filter(({ name }) => model.kernels[name]?.name.length);
    this.end = Math.max(...this.modes.map(({ latency }) => latency));
    this.laid = Object.fromEntries(this.modes.map(({ name, latency }) => [name, this.scaled(name, latency)]));
    this.from = 0;
    this.to = this.end;
    this.findStages();
    this.plot = svg("svg", { class: "timeline", tabindex: "0", role: "img", "aria-label": this.summary() });
    const button = (title, label, act) => html("button", { type: "button", "aria-label": label, onclick: act }, title);
    const buttons = html("div", { class: "controls" },
      button("+", "Zoom in", () => this.zoom(0.5)), button("−", "Zoom out", () => this.zoom(2)), button("Fit", "Show the whole call", () => this.show(0, this.end)),
      html("span", { class: "soft" }, "click a kernel to find its module"));
    stage.append(buttons, this.plot);
    this.listen();
    drawnToWidth(stage, (width) => {
      this.width = width - GUTTER;
      this.draw();
    });
  }

  /* Begin and length of each kernel, so that the last ends with the predicted latency. */
  scaled(mode, latency) {
    const kernels = this.model.kernels[mode];
    const last = kernels.start.reduce((most, start, index) => Math.max(most, start + kernels.device[index], kernels.hostStart[index] + kernels.host[index]), 0);
    const times = (column) => kernels[column].map((us) => us * (last ? latency / last : 1));
    return { hostStart: times("hostStart"), host: times("host"), start: times("start"), device: times("device") };
  }

  summary() {
    return `Timeline of one call. ${this.modes.map(({ name, latency }) => `${name}: ${microseconds(latency)}`).join(", ")}.`;
  }

  /* Names of the stages in order of execution, and the stage of each kernel, by its layer's path. */
  findStages() {
    const path = this.model.stagePath();
    const places = new Map();
    const stageOf = (layer) => {
      const inner = path && layer.startsWith(`${path}.`) ? layer.slice(path.length + 1) : layer;
      const name = inner.split(".", 1)[0];
      if (!places.has(name)) places.set(name, places.size);
      return places.get(name);
    };
    this.stageOf = Object.fromEntries(this.modes.map(({ name }) => [name, this.model.kernels[name].layer.map((word) => stageOf(this.model.words[word]))]));
    this.stages = [...places.keys()];
  }

  listen() {
    this.plot.addEventListener("keydown", (event) => {
      const span = this.to - this.from;
      const acts = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show(0, this.end), ArrowRight: () => this.pan(span / 5), ArrowLeft: () => this.pan(-span / 5) };
      if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      acts[event.key]();
    });
    this.plot.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.time(event.offsetX - GUTTER));
    }, { passive: false });
    this.plot.addEventListener("pointerdown", (event) => {
      this.grabbed = { x: event.clientX, from: this.from, to: this.to, moved: false };
    });
    this.plot.addEventListener("pointermove", (event) => {
      if (!this.grabbed || !event.buttons) {
        this.grabbed = null;
        return;
      }
      const shift = event.clientX - this.grabbed.x;
      if (Math.abs(shift) < 4 && !this.grabbed.moved) return;
      this.grabbed.moved = true;
      const span = this.grabbed.to - this.grabbed.from;
      this.show(this.grabbed.from - (shift / this.width) * span, this.grabbed.to - (shift / this.width) * span);
    });
    this.plot.addEventListener("pointerleave", hideTooltip);
  }

  time(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(by) {
    this.show(this.from + by, this.to + by);
  }

  show(from, to) {
    const span = Math.min(this.end, Math.max(to - from, this.end / 5000));
    this.from = Math.max(0, Math.min(from, this.end - span));
    this.to = this.from + span;
    this.draw();
  }

  draw() {
    if (!this.width) return;
    const height = AXIS + this.modes.length * (3 * LANE + 2 * LANE_GAP + MODE_GAP);
    const scale = this.width / (this.to - this.from);
    fill(this.plot, { viewBox: `0 0 ${this.width + GUTTER} ${height}`, height }, []);
    const modes = this.modes.flatMap((mode, index) => this.mode(mode, AXIS + index * (3 * LANE + 2 * LANE_GAP + MODE_GAP), scale));
    this.plot.replaceChildren(svg("g", { transform: `translate(${GUTTER})` }, ...this.axis(height), ...modes));
  }

  axis(height) {
    const steps = axisSteps(this.from, this.to, this.width / 110);
    const milli = this.end >= 2000;
    return steps.flatMap((at) => {
      const x = ((at - this.from) / (this.to - this.from)) * this.width;
      const said = milli ? `${+(at / 1000).toPrecision(6)} ms` : `${+at.toPrecision(6)} µs`;
      const anchor = x > this.width - 30 ? "end" : "middle";
      return [svg("line", { class: "grid", x1: x, x2: x, y1: 16, y2: height }), text(said, { class: "tick", x, y: 11, "text-anchor": anchor })];
    });
  }

  mode({ name, latency }, y, scale) {
    const kernels = this.model.kernels[name];
    const laid = this.laid[name];
    const lanes = y + 20;
    const stopped = Math.min(this.width, (latency - this.from) * scale);
    const parts = [
      text(name, { class: "mode-name", x: 0, y: y + 13 }),
      ...["host", "device"].map((lane, index) => text(lane, { class: "lane-name", x: -8, y: lanes + 14 + index * (LANE + LANE_GAP), "text-anchor": "end" })),
    ];
    parts[0].append(svg("tspan", { class: "mode-time", dx: 8 }, microseconds(latency)));
    if (stopped > 0) parts.push(svg("rect", { class: "lane", x: 0, y: lanes, width: stopped, height: 2 * LANE + LANE_GAP }));
    parts.push(...this.lane(name, kernels, laid.hostStart, laid.host, lanes, scale, "host"));
    parts.push(...this.lane(name, kernels, laid.start, laid.device, lanes + LANE + LANE_GAP, scale, "device"));
    parts.push(...this.stageLane(this.stageOf[name], laid, lanes + 2 * (LANE + LANE_GAP), scale));
    return parts;
  }

  lane(mode, kernels, starts, lengths, y, scale, kind) {
    const shapes = [];
    let open = null;
    const close = () => {
      if (!open) return;
      const one = open.count === 1;
      const shape = svg("rect", { class: `kernel ${kind} k${open.stage % 6}${one && kernels.extra[open.index] ? " unsure" : ""}`, x: open.x.toFixed(2), y, width: Math.max(0.6, open.end - open.x - (one && open.end - open.x > 3 ? 0.8 : 0)).toFixed(2), height: LANE });
      if (!one) shape.style.opacity = ((kind === "host" ? 0.62 : 1) * Math.max(0.3, Math.min(1, open.busy / (open.end - open.x)))).toFixed(2);
      const { index, count } = open;
      shape.addEventListener("pointermove", (event) => showTooltip(count === 1 ? this.model.kernelFacts(mode, index) : [`${count} kernels`, "zoom in to see each"], event.clientX, event.clientY));
      shape.addEventListener("pointerleave", hideTooltip);
      shape.addEventListener("click", () => {
        if (!this.grabbed?.moved) this.reveal(kernels.node[index]);
      });
      shapes.push(shape);
      open = null;
    };
    for (let index = 0; index < starts.length; index += 1) {
      if (!lengths[index]) continue;
      const x = (starts[index] - this.from) * scale;
      const end = x + lengths[index] * scale;
      if (end < 0 || x > this.width) continue;
      const thin = end - x < 1.5;
      const stage = this.stageOf[mode][index];
      if (open && thin && open.thin && stage === open.stage && x - open.end < 1) Object.assign(open, { end: Math.max(open.end, end), busy: open.busy + end - x, count: open.count + 1 });
      else {
        close();
        open = { x: Math.max(0, x), end: Math.min(end, this.width), busy: end - x, count: 1, index, thin, stage };
      }
    }
    close();
    return shapes;
  }

  /* The stage of most kernels around one, since a fused kernel may prepare what a later stage reads. */
  smoothed(stages, index) {
    const counts = new Map();
    for (let at = Math.max(0, index - 4); at <= Math.min(stages.length - 1, index + 4); at += 1) {
      const stage = stages[at];
      counts.set(stage, (counts.get(stage) || 0) + (at === index ? 1.5 : 1));
    }
    return [...counts].reduce((most, one) => (one[1] > most[1] ? one : most))[0];
  }

  stageLane(stages, laid, y, scale) {
    const spans = [];
    laid.start.forEach((start, index) => {
      const stage = this.smoothed(stages, index);
      const end = start + laid.device[index];
      const last = spans.at(-1);
      if (last && last.stage === stage) last.end = Math.max(last.end, end);
      else spans.push({ stage, start, end });
    });
    return spans.flatMap(({ stage, start, end }) => {
      const x = Math.max(0, (start - this.from) * scale);
      const width = Math.min(this.width, (end - this.from) * scale) - x;
      if (width < 2) return [];
      const label = fitted(this.stages[stage], width - 6, 6.4, true);
      return [svg("line", { class: `stage-line k${stage % 6}`, x1: x + 0.5, x2: x + width - 1, y1: y + 2, y2: y + 2 }), ...(label ? [text(label, { class: "stage-name", x: x + width / 2, y: y + 15, "text-anchor": "middle" })] : [])];
    });
  }
}
