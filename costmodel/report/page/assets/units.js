/* Numbers as texts, and colours of numbers. */
const KNOWN = (value) => value !== null && value !== undefined && Number.isFinite(value);

function digits(value, count = 3) {
  if (!KNOWN(value)) return "-";
  if (value === 0) return "0";
  const places = Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en-US", { minimumFractionDigits: Math.min(places, 3), maximumFractionDigits: Math.min(places, 3) });
}

function microseconds(value) {
  if (!KNOWN(value) || value === 0) return "-";
  if (value < 0.01) return "<0.01 µs";
  return value >= 1000 ? `${digits(value / 1000)} ms` : `${digits(value)} µs`;
}

function ratio(value) {
  if (!KNOWN(value)) return "-";
  return value >= 100 ? ">99×" : `${value.toFixed(2)}×`;
}

function percent(share) {
  if (!KNOWN(share)) return "-";
  return share > 0 && share < 0.001 ? "<0.1 %" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

function large(value, unit = "") {
  if (!KNOWN(value) || value === 0) return "-";
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
  const [size, prefix] = steps.find(([least]) => Math.abs(value) >= least) || [1, ""];
  return `${digits(value / size)} ${prefix}${unit}`.trim();
}

/* Blue above 1 and orange below, at full depth from a factor of 4 on; both themes mix it from their own ground. */
function speedupColor(speedup) {
  if (!KNOWN(speedup) || speedup <= 0) return "var(--unknown)";
  const depth = Math.max(-1, Math.min(1, Math.log(speedup) / Math.log(4)));
  const end = depth > 0 ? "var(--faster)" : "var(--slower)";
  return `color-mix(in oklab, ${end} ${Math.round(100 * Math.abs(depth))}%, var(--even))`;
}

/* Round steps of an axis. */
function axisSteps(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  if (!(rough > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

/* Words that fit a width, shortened at their end, or at their beginning where ends tell them apart. */
function fitted(words, width, character = 6.4, keepsEnd = false) {
  const room = Math.floor(width / character);
  if (words.length <= room) return words;
  if (room < 3) return "";
  return keepsEnd ? `…${words.slice(1 - room)}` : `${words.slice(0, room - 1)}…`;
}
