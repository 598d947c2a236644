// Unpacked data of the page, and formatting.
const $ = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
// Lighter colours for a dark page.
const onDark = { "#4d4d4d": "#b5b5b0", "#9a9a9a": "#75767a", "#8e2f6b": "#c0569b", "#117733": "#3fa55f" };
const paint = (color) => (dark.matches && onDark[color]) || color;
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Times from their differences.
function times(steps) {
  const made = new Float64Array(steps.length);
  let now = 0;
  steps.forEach((step, at) => { now += step; made[at] = now; });
  return made;
}

// A run prepared for drawing: spans by stream in order, memory in use by kind after every change.
function ready(run, kinds, streams, looks) {
  const { spans, stalls, memory } = run;
  spans.start = times(spans.start);
  stalls.start = times(stalls.start);
  memory.time = times(memory.time);
  spans.tracks = Array.from({ length: streams }, () => []);
  spans.stream.forEach((stream, at) => spans.tracks[stream].push(at));
  const count = memory.time.length, totals = new Float64Array(count);
  const inUse = kinds.map(() => new Float64Array(count)), now = kinds.map(() => 0);
  let total = 0, peak = 0;
  for (let at = 0; at < count; at++) {
    const kind = run.buffers.kind[memory.buffer[at]];
    now[kind] += memory.delta[at];
    total += memory.delta[at];
    totals[at] = total;
    if (total > totals[peak]) peak = at;
    now.forEach((bytes, each) => { inUse[each][at] = bytes; });
  }
  Object.assign(memory, { totals, inUse, peak, blocks: greatest(totals) });
  run.host = onHost(spans, looks.findIndex(([name]) => name === "offload"));
  return run;
}
// Bytes in host memory alone: from the end of an offload to the start of its prefetch.
function onHost({ start, length, look, bytes }, offload) {
  const moved = [...bytes.keys()].filter((at) => bytes[at]).map((at) => (look[at] === offload ? [start[at] + length[at], bytes[at]] : [start[at], -bytes[at]]));
  moved.sort(([one], [other]) => one - other);
  let held = 0;
  const total = moved.map(([, more]) => (held += more));
  return { time: moved.map(([time]) => time), bytes: total, most: total.reduce((most, each) => Math.max(most, each), 0) };
}

// The position of the greatest total within every 64 changes, so that no column has to look at all of them.
const BLOCK = 64;
function greatest(totals) {
  const found = new Int32Array(Math.ceil(totals.length / BLOCK));
  for (let block = 0; block < found.length; block++) found[block] = scan(totals, block * BLOCK, Math.min((block + 1) * BLOCK, totals.length));
  return found;
}
function scan(totals, from, to) {
  let best = from;
  for (let at = from + 1; at < to; at++) if (totals[at] > totals[best]) best = at;
  return best;
}
function most(memory, from, to) {
  const { totals, blocks } = memory;
  const first = Math.ceil(from / BLOCK), last = Math.floor(to / BLOCK);
  if (first >= last) return scan(totals, from, to);
  let best = from < first * BLOCK ? scan(totals, from, first * BLOCK) : blocks[first];
  for (let block = first; block < last; block++) if (totals[blocks[block]] > totals[best]) best = blocks[block];
  if (last * BLOCK < to) { const rest = scan(totals, last * BLOCK, to); if (totals[rest] > totals[best]) best = rest; }
  return best;
}

// The first position whose value is above a limit.
function after(count, value, limit) {
  let low = 0, high = count;
  while (low < high) { const middle = (low + high) >> 1; if (value(middle) > limit) high = middle; else low = middle + 1; }
  return low;
}

const digits = (number) => (number >= 100 ? number.toFixed(0) : number >= 10 ? number.toFixed(1) : number.toFixed(2));
function seconds(ns) {
  const s = Math.abs(ns) / 1e9, sign = ns < 0 ? "−" : "";
  return s === 0 ? "0 s" : s >= 1 ? `${sign}${digits(s)} s` : s >= 1e-3 ? `${sign}${digits(s * 1e3)} ms` : s >= 1e-6 ? `${sign}${digits(s * 1e6)} us` : `${sign}${digits(s * 1e9)} ns`;
}
function size(bytes) {
  const b = Math.abs(bytes), sign = bytes < 0 ? "−" : "";
  for (const [name, factor] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]]) if (b >= factor * (1 - 0.5 / 1024)) return `${sign}${digits(b / factor)} ${name}`;
  return `${sign}${b} B`;
}

// An element with its attributes and what is in it; texts stay texts.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A canvas in the pixels of the screen; drawing stays in those of the page.
function surface(canvas, height) {
  const width = canvas.clientWidth, ratio = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.clearRect(0, 0, width, height);
  context.font = `12px ${style("--sans")}`;
  context.textBaseline = "middle";
  return { context, width, height };
}
