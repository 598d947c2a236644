// Timeline: memory of GPU and CPU above the streams; spans narrower than a pixel are merged.
const view = { from: 0, to: 1, at: null, hover: null, changed: [] };
const MEMORY = 190, HOST = 74, BETWEEN = 16, ROW = 30, GAP = 7, AXIS = 26;
let all, run;
const edge = () => ($("streams").clientWidth < 600 ? 58 : 92);
const changed = () => view.changed.forEach((each) => each());

function look(from, to) {
  const least = Math.max(50, run.end / 1e7), length = Math.min(run.end, Math.max(least, to - from));
  view.from = Math.max(0, Math.min(run.end - length, from));
  view.to = view.from + length;
  changed();
}
function zoom(factor, around = (view.from + view.to) / 2) {
  look(around - (around - view.from) * factor, around + (view.to - around) * factor);
}
const x = (time, width) => edge() + ((time - view.from) / (view.to - view.from)) * (width - edge());
const time = (pixel, width) => view.from + ((pixel - edge()) / (width - edge())) * (view.to - view.from);

// Rows below the memory: compute, and of waits, copies and exchanges those that there are.
function rows() {
  const made = [{ name: "compute", track: 0 }];
  if (run.stalls.start.length) made.push({ name: "waits" });
  for (const [track, name] of [[1, "copies"], [2, "exchange"]]) if (run.spans.tracks[track].length) made.push({ name, track });
  return made.map((row, at) => ({ ...row, top: MEMORY + (run.host.most ? BETWEEN + HOST : 0) + 14 + at * (ROW + GAP) }));
}

function drawStreams() {
  const made = rows(), height = made.at(-1).top + ROW + AXIS;
  const { context, width } = surface($("streams"), height);
  drawMemory(context, width, edge(), view.from, view.to, MEMORY, true);
  if (run.host.most) drawHost(context, width, edge());
  for (const row of made) {
    context.fillStyle = style("--muted");
    context.fillText(row.name, 0, row.top + ROW / 2);
    context.fillStyle = style("--card");
    context.fillRect(edge(), row.top, width - edge(), ROW);
    if (row.track === undefined) drawStalls(context, width, row.top);
    else drawSpans(context, width, row.top, run.spans.tracks[row.track]);
  }
  drawAxis(context, width, height - AXIS / 2 + 2);
  for (const [moment, color] of [[view.at, style("--accent")], [view.hover, style("--muted")]]) {
    if (moment === null || moment < view.from || moment > view.to) continue;
    context.fillStyle = color;
    context.fillRect(Math.round(x(moment, width)), 0, 1, height - AXIS);
  }
}

// Slices in their order; of those within one pixel the one that takes most of it gives the colour, as strong as it is.
function slices(context, width, top, which, { start, length }, look, palette, name) {
  const gutter = edge(), scale = (width - gutter) / (view.to - view.from), shares = new Float64Array(palette.length);
  const ends = (each) => start[which(each)] + length[which(each)];
  let pixel = -1;
  const flush = () => {
    if (pixel < 0) return;
    const best = scan(shares, 0, shares.length);
    context.globalAlpha = Math.min(1, 0.25 + shares[best]);
    context.fillStyle = palette[best];
    context.fillRect(pixel, top, 1, ROW);
    context.globalAlpha = 1;
    shares.fill(0);
    pixel = -1;
  };
  for (let each = after(which.count, ends, view.from); each < which.count; each++) {
    const at = which(each);
    if (start[at] >= view.to) break;
    const left = gutter + (start[at] - view.from) * scale, wide = length[at] * scale;
    if (wide < 1) {
      const now = Math.floor(left);
      if (now !== pixel) { flush(); pixel = now; }
      shares[look[at]] += wide;
      continue;
    }
    const from = Math.max(gutter, left), end = Math.min(width, left + wide);
    context.fillStyle = palette[look[at]];
    context.fillRect(from, top, Math.max(1, end - from - (wide > 4 ? 1 : 0)), ROW);
    if (end - from > 60) label(context, name(at), from + 5, top + ROW / 2, end - from - 10, palette[look[at]]);
  }
  flush();
}
function label(context, text, left, middle, room, color) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  context.save();
  context.beginPath();
  context.rect(left, middle - 12, room, 24);
  context.clip();
  context.fillStyle = 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#1a1a1a" : "#ffffff";
  context.fillText(text, left, middle);
  context.restore();
}
function drawSpans(context, width, top, track) {
  const which = Object.assign((each) => track[each], { count: track.length });
  slices(context, width, top, which, run.spans, run.spans.look, all.looks.map(([, color]) => paint(color)), (at) => all.names[run.spans.name[at]]);
}
function drawStalls(context, width, top) {
  const which = Object.assign((each) => each, { count: run.stalls.start.length });
  slices(context, width, top, which, run.stalls, run.stalls.cause, all.causes.map(([, color]) => paint(color)), (at) => all.causes[run.stalls.cause[at]][0]);
}

// Every column shows its moment of greatest use, so no peak is lost between two pixels.
function drawMemory(context, width, left, from, to, height, ruled) {
  const { time: times, totals, inUse, peak } = run.memory, count = times.length;
  const top = limit(totals[peak] || 1, run.fits ? all.capacity : Infinity), columns = Math.floor(width - left);
  const kinds = all.kinds.map(([, color], kind) => [paint(color), inUse[kind]]);
  if (ruled) rules(context, width, 0, height, top);
  const stack = (shown, column) => {
    let bottom = height;
    for (const [color, bytes] of kinds) {
      const tall = (bytes[shown] / top) * (height - 4);
      if (!tall) continue;
      context.fillStyle = color;
      context.fillRect(left + column, bottom - tall, 1.4, tall);
      bottom -= tall;
    }
  };
  let at = after(count, (each) => times[each], from);
  for (let column = 0; column < columns; column++) {
    const until = from + ((column + 1) / columns) * (to - from);
    let next = at;
    while (next < count && times[next] <= until) next = next + BLOCK < count && times[next + BLOCK] <= until ? next + BLOCK : next + 1;
    const shown = next > at ? most(run.memory, Math.max(0, at - 1), next) : at - 1;
    at = next;
    if (shown >= 0) stack(shown, column);
  }
  if (ruled) drawCapacity(context, width, 0, height, top, all.capacity, "GPU");
}
// What is in host memory alone, the greatest within every column.
function drawHost(context, width, left) {
  const { time: times, bytes, most } = run.host, top = limit(most, all.hostCapacity), above = MEMORY + BETWEEN, scale = (view.to - view.from) / (width - left);
  rules(context, width, above, HOST, top);
  context.fillStyle = paint(all.looks.find(([name]) => name === "offload")[1]);
  let at = after(times.length, (each) => times[each], view.from);
  for (let column = 0; column < width - left; column++) {
    let held = at ? bytes[at - 1] : 0;
    for (; at < times.length && times[at] <= view.from + (column + 1) * scale; at++) held = Math.max(held, bytes[at]);
    const tall = (held / top) * (HOST - 4);
    if (tall) context.fillRect(left + column, above + HOST - tall, 1.4, tall);
  }
  drawCapacity(context, width, above, HOST, top, all.hostCapacity, "CPU");
}
// The top of a panel: a capacity far above all use would leave nothing to see.
const limit = (most, capacity) => 1.06 * Math.max(most, capacity < 4 * most ? capacity : 0);
function drawCapacity(context, width, above, height, top, capacity, name) {
  const line = above + height - (capacity / top) * (height - 4), middle = line > above ? line + 13 : above + 8, told = line > above ? `capacity ${size(capacity)}` : `↑ capacity ${size(capacity)}`;
  context.strokeStyle = style("--paper");
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.fillStyle = style("--ink");
  context.strokeText(name, edge() + 4, middle);
  context.fillText(name, edge() + 4, middle);
  context.fillStyle = style("--alarm");
  context.textAlign = "right";
  if (line > above) context.fillRect(edge(), line, width - edge(), 1.5);
  context.strokeText(told, width - 4, middle);
  context.fillText(told, width - 4, middle);
  context.textAlign = "left";
}
function rules(context, width, above, height, top) {
  const step = 2 ** Math.floor(Math.log2(top / (height < 100 ? 1.5 : 3)));
  for (let bytes = step; bytes < top; bytes += step) {
    const line = above + height - (bytes / top) * (height - 4);
    context.fillStyle = style("--rule");
    context.fillRect(edge(), line, width - edge(), 1);
    context.fillStyle = style("--muted");
    context.fillText(size(bytes), 0, line);
  }
}
function drawAxis(context, width, middle) {
  const span = view.to - view.from, wanted = span / Math.max(2, (width - edge()) / 130), unit = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= wanted);
  context.fillStyle = style("--muted");
  // Far into an iteration few digits differ: the left end is told in full, the others from there on.
  const far = span < 0.02 * view.from, begin = far ? view.from : Math.ceil(view.from / step) * step;
  for (let tick = begin; tick <= view.to; tick += step) {
    const left = x(tick, width);
    if (left > width - 50) break;
    context.fillText(far && tick > begin ? `+${seconds(tick - begin)}` : seconds(tick), left, middle);
  }
}
let whole = {};
function drawOverview() {
  const { context, width, height } = surface($("overview"), 46), left = edge(), of = [run.policy, width, dark.matches].join();
  if (whole.of !== of) {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width, height });
    drawMemory(canvas.getContext("2d"), width, left, 0, run.end, height, false);
    whole = { of, canvas };
  }
  context.drawImage(whole.canvas, 0, 0, width, height);
  const [from, to] = [view.from, view.to].map((each) => left + (each / run.end) * (width - left));
  context.globalAlpha = 0.72;
  context.fillStyle = style("--paper");
  context.fillRect(left, 0, from - left, height);
  context.fillRect(to, 0, width - to, height);
  context.globalAlpha = 1;
  context.strokeStyle = style("--accent");
  context.lineWidth = 1.5;
  context.strokeRect(from, 0.75, Math.max(2, to - from), height - 1.5);
}

// What lies at a place of the picture, in words.
function under(pixel, height, width) {
  const moment = time(pixel, width), row = rows().find((each) => height >= each.top && height <= each.top + ROW);
  const slack = (view.to - view.from) / (width - edge());
  if (row && row.track === undefined) {
    const { start, length } = run.stalls, at = after(start.length, (each) => start[each] + length[each], moment - slack);
    if (at < start.length && start[at] <= moment + slack) return { from: start[at], length: length[at], words: stallWords(at) };
  } else if (row) {
    const { start, length } = run.spans, track = run.spans.tracks[row.track];
    const at = track[after(track.length, (each) => start[track[each]] + length[track[each]], moment - slack)];
    if (at !== undefined && start[at] <= moment + slack) return { from: start[at], length: length[at], words: spanWords(at) };
  }
  if (run.host.most && height > MEMORY) {
    const held = run.host.bytes[after(run.host.time.length, (each) => run.host.time[each], moment) - 1] || 0;
    return { words: [`${size(held)} on the host at ${seconds(moment)}`, "offloaded and not yet prefetched"] };
  }
  const at = after(run.memory.time.length, (each) => run.memory.time[each], moment) - 1;
  const parts = at < 0 ? [] : all.kinds.map(([kind], each) => [kind, run.memory.inUse[each][at]]).filter(([, bytes]) => bytes);
  const inUse = at < 0 ? 0 : run.memory.totals[at];
  return { words: [`${size(inUse)} allocated at ${seconds(moment)}`, parts.map(([kind, bytes]) => `${kind} ${size(bytes)}`).join(", ")] };
}
function spanWords(at) {
  const { start, length, name, bytes } = run.spans;
  const rate = bytes[at] ? `, ${size(bytes[at])} at ${digits(bytes[at] / length[at])} GB/s` : "";
  return [all.names[name[at]], `${seconds(length[at])} from ${seconds(start[at])} on${rate}`];
}
const called = (at) => (at < 0 ? "the host" : all.names[run.spans.name[at]]);
function stallWords(at) {
  const { start, length, cause, blocked, waited } = run.stalls;
  return [`${all.causes[cause[at]][0]}: ${seconds(length[at])} lost from ${seconds(start[at])} on`, `${called(blocked[at])} waits for ${called(waited[at])}`];
}
function say(id, [first, second]) {
  $(id).replaceChildren(make("b", {}, first), make("br"), second);
}
