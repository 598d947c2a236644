// Address map: buffers by address and time.
function placements() {
  if (run.placements) return run.placements;
  const { time: times, buffer, delta, offset } = run.memory, open = new Map(), made = [];
  for (let at = 0; at < offset.length; at++) {
    const held = open.get(buffer[at]);
    if (delta[at] > 0 && !held) open.set(buffer[at], { buffer: buffer[at], from: times[at], to: run.end, low: offset[at], bytes: delta[at], held: delta[at] });
    else if (held) {
      held.held += delta[at];
      if (held.held <= 0) { held.to = times[at]; made.push(held); open.delete(buffer[at]); }
    }
  }
  made.push(...open.values());
  run.top = made.reduce((top, each) => Math.max(top, each.low + each.bytes), 1);
  return (run.placements = made);
}
function drawMap() {
  if (!$("map") || !run.memory.offset.length) return;
  const height = 340, { context, width } = surface($("map"), height), gutter = edge(), scale = (width - gutter) / (view.to - view.from);
  const found = placements();
  context.fillStyle = style("--card");
  context.fillRect(edge(), 0, width - edge(), height);
  for (const each of found) {
    if (each.to < view.from || each.from > view.to) continue;
    const left = Math.max(gutter, gutter + (each.from - view.from) * scale), right = Math.min(width, gutter + (each.to - view.from) * scale);
    const tall = (each.bytes / run.top) * height, low = height - (each.low / run.top) * height;
    context.fillStyle = paint(all.kinds[run.buffers.kind[each.buffer]][1]);
    context.fillRect(left, low - tall, Math.max(0.6, right - left), Math.max(0.5, tall - (tall > 3 ? 0.7 : 0)));
  }
  context.fillStyle = style("--muted");
  const step = 2 ** Math.floor(Math.log2(run.top / 3));
  for (let bytes = 0; bytes < run.top; bytes += step) context.fillText(size(bytes), 0, Math.max(8, height - (bytes / run.top) * height - 6));
}
function underMap(event) {
  const canvas = $("map"), moment = time(event.offsetX, canvas.clientWidth), place = (1 - event.offsetY / canvas.clientHeight) * run.top;
  const found = placements().find((each) => each.from <= moment && moment < each.to && each.low <= place && place < each.low + each.bytes);
  say("map-readout", found
    ? [all.names[run.buffers.name[found.buffer]], `${size(found.bytes)} at ${size(found.low)}, from ${seconds(found.from)} to ${seconds(found.to)}`]
    : ["free", `at ${size(place)}, ${seconds(moment)}`]);
}
