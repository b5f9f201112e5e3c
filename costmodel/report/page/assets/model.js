/* The data of one report: nodes of the module tree by their place, kernels by mode, and what several charts ask of them. */
class Model {
  constructor(data) {
    Object.assign(this, data);
    const tree = data.tree;
    this.size = tree.parent.length;
    this.children = Array.from({ length: this.size }, () => []);
    this.depth = new Array(this.size).fill(0);
    this.end = new Array(this.size).fill(0);
    for (let node = 0; node < this.size; node += 1) {
      const parent = tree.parent[node];
      if (parent < 0) continue;
      this.children[parent].push(node);
      this.depth[node] = this.depth[parent] + 1;
    }
    for (let node = this.size - 1; node >= 0; node -= 1) {
      const last = this.children[node].at(-1);
      this.end[node] = last === undefined ? node + 1 : this.end[last];
    }
  }

  word(column, node) {
    return this.words[this.tree[column][node]];
  }

  /* Name to show: the model's own for its root. */
  title(node) {
    return this.word("name", node) || this.word("label", node);
  }

  facts(node) {
    const { tree } = this;
    const times = `${microseconds(tree.eager[node])} eager, ${microseconds(tree.compiled[node])} compiled`;
    const span = KNOWN(tree.low[node]) ? ` (${tree.low[node].toFixed(2)}–${tree.high[node].toFixed(2)})` : "";
    return [
      this.title(node),
      [this.word("type", node), this.word("shape", node)].filter(Boolean).join(", "),
      times,
      KNOWN(tree.speedup[node]) ? `${ratio(tree.speedup[node])}${span}` : "",
      [this.word("bound", node) && `bound by ${this.word("bound", node)}`, this.word("why", node)].filter(Boolean).join("; "),
      tree.extra[node] > 0 ? `${percent(tree.extra[node])} of the time extrapolated` : "",
    ].filter(Boolean);
  }

  /* Path of the module whose children are the model's stages: below wrappers that hold nearly everything. */
  stagePath() {
    let node = 0;
    for (;;) {
      const main = this.children[node].find((child) => this.tree.eager[child] > 0.9 * this.tree.eager[node]);
      if (main === undefined || this.children[main].length < 2 || this.tree.count[main] > 1) return this.word("name", node);
      node = main;
    }
  }

  kernelFacts(mode, index) {
    const kernels = this.kernels[mode];
    const more = kernels.more[index] ? ` and ${kernels.more[index]} more` : "";
    const flops = kernels.flops[index] ? `${large(kernels.flops[index], "FLOP")}, ` : "";
    return [
      this.words[kernels.name[index]],
      `${this.words[kernels.layer[index]] || this.title(0)}${more}`,
      `${microseconds(kernels.device[index])} on the device, ${microseconds(kernels.host[index])} to launch`,
      `${flops}${large(kernels.bytes[index], "B")} moved`,
      kernels.extra[index] ? "extrapolated" : "",
    ].filter(Boolean);
  }
}
