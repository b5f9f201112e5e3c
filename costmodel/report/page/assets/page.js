/* Charts of every report on the page, each made when it comes near the screen, and all before printing. */
const CHARTS = {
  tree: (section, shared) => {
    shared.tree = new TreeTable(section.querySelector(".stage"), shared.model, shared.id);
  },
  timeline: (section, shared) => new Timeline(section.querySelector(".stage"), shared.model, shared.reveal),
  icicle: (section, shared) => new Icicle(section.querySelector(".stage"), shared.model, shared.reveal),
  roofline: (section, shared) => new RooflineChart(section.querySelector(".stage"), shared.model, shared.reveal),
  graph: (section, shared) => new GraphView(section, shared.model, shared.reveal),
};
const waiting = new Map();

function make(section) {
  const chart = waiting.get(section);
  waiting.delete(section);
  if (chart) chart();
}

const nearby = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) make(entry.target);
}, { rootMargin: "800px" });

for (const data of document.querySelectorAll("script.data")) {
  const id = data.dataset.case;
  const article = document.getElementById(id);
  const shared = { id, get model() {
    const model = new Model(JSON.parse(data.textContent));
    Object.defineProperty(shared, "model", { value: model });
    return model;
  } };
  shared.reveal = (node) => {
    make(article.querySelector('[data-chart="tree"]'));
    shared.tree.reveal(node);
  };
  for (const section of article.querySelectorAll("[data-chart]")) {
    waiting.set(section, () => CHARTS[section.dataset.chart](section, shared));
    nearby.observe(section);
  }
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.parentElement.querySelector("code"));
    }
  });
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = target && target.closest("details");
  if (fold) {
    fold.open = true;
    target.scrollIntoView();
  }
}
window.addEventListener("hashchange", openTarget);
openTarget();

/* Everything on paper: all parts open, all charts drawn. */
window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  for (const section of [...waiting.keys()]) make(section);
});

document.documentElement.classList.add("ready");
