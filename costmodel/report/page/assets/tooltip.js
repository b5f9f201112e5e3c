/* One tooltip for all charts; the status line beside a chart says the same to screen readers. */
const tooltip = html("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
document.body.append(tooltip);

function showTooltip(lines, x, y) {
  tooltip.replaceChildren(...lines.map((line, index) => html(index ? "div" : "b", {}, line)));
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.max(8, Math.min(x + 14, window.innerWidth - width - 12));
  const top = y + 18 + height > window.innerHeight ? y - height - 12 : y + 18;
  tooltip.style.left = `${left}px`;
  tooltip.style.top = `${Math.max(4, top)}px`;
}

function hideTooltip() {
  tooltip.hidden = true;
}

window.addEventListener("scroll", hideTooltip, { passive: true });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideTooltip();
});
