/* Elements made of data. Texts are always set as text, never parsed as HTML. */
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function html(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function text(content, attributes) {
  return svg("text", attributes, content);
}

/* A group of buttons of which one is pressed. */
function choice(label, options, chosen, choose) {
  const buttons = options.map(({ value, title }) =>
    html("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button === buttons[options.findIndex((option) => option.value === value)]));
      choose(value);
    } }, title));
  return html("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/* Draws anew whenever the width of a stage changes, and first when it comes near the screen. */
function drawnToWidth(stage, draw) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.floor(stage.clientWidth);
    if (now === width || now < 50) return;
    width = now;
    draw(width);
  }).observe(stage);
}
