// Set-up of the page: redraws, and input by pointer and keys.
let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    // A page that is not laid out yet has no width.
    if ($("streams").clientWidth) { drawOverview(); drawStreams(); drawMap(); }
  });
}

function setUpHands() {
  const canvas = $("streams");
  let held = null, moved = false;
  canvas.addEventListener("pointerdown", (event) => { held = { at: event.offsetX, from: view.from }; moved = false; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const width = canvas.clientWidth, length = view.to - view.from;
    if (held && Math.abs(event.offsetX - held.at) > 3) moved = true;
    if (held && moved) return look(held.from - ((event.offsetX - held.at) / (width - edge())) * length, held.from - ((event.offsetX - held.at) / (width - edge())) * length + length);
    view.hover = event.offsetX < edge() ? null : time(event.offsetX, width);
    if (view.hover !== null) say("readout", under(event.offsetX, event.offsetY, width).words);
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!moved && event.offsetX >= edge()) { view.at = time(event.offsetX, canvas.clientWidth); listAlive(); draw(); }
    held = null;
  });
  canvas.addEventListener("pointerleave", () => { view.hover = null; draw(); });
  canvas.addEventListener("dblclick", (event) => {
    const found = under(event.offsetX, event.offsetY, canvas.clientWidth);
    if (found.length) look(found.from - found.length, found.from + 2 * found.length); else zoom(0.4, time(event.offsetX, canvas.clientWidth));
  });
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY / 400), time(event.offsetX, canvas.clientWidth));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / 8;
    const keys = {
      ArrowLeft: () => look(view.from - step, view.to - step), ArrowRight: () => look(view.from + step, view.to + step),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => look(0, run.end),
      n: () => visit(waits.at + 1, false), p: () => visit(waits.at - 1, false), Enter: () => { view.at = (view.from + view.to) / 2; listAlive(); draw(); }, w: () => visit(longest(), false),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  const overview = $("overview"), go = (event) => {
    const middle = ((event.offsetX - edge()) / (overview.clientWidth - edge())) * run.end, half = (view.to - view.from) / 2;
    look(middle - half, middle + half);
  };
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); go(event); });
  overview.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  const clicks = { in: () => zoom(0.5), out: () => zoom(2), all: () => look(0, run.end), worst: () => visit(longest(), false), next: () => visit(waits.at + 1, false), previous: () => visit(waits.at - 1, false),
    more: () => { waits.shown += 200; showWaits(); }, peak: () => { view.at = null; listAlive(); draw(); } };
  for (const [id, does] of Object.entries(clicks)) $(id).addEventListener("click", does);
  $("policy").addEventListener("change", () => choose($("policy").value));
  $("cause").addEventListener("change", listWaits);
  $("find").addEventListener("input", listWaits);
  document.querySelectorAll(".dot").forEach((dot) => {
    dot.addEventListener("click", () => choose(dot.dataset.policy));
    dot.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(dot.dataset.policy); } });
  });
  if ($("map")) $("map").addEventListener("pointermove", underMap);
}

async function open() {
  if (!("DecompressionStream" in window)) return;
  all = await unpack($("recording").textContent);
  all.runs.forEach((each) => ready(each, all.kinds, all.streams.length, all.looks));
  document.querySelectorAll(".live").forEach((each) => { each.hidden = false; });
  $("policy").replaceChildren(...all.runs.map((each) => make("option", { value: each.policy }, each.policy)));
  view.changed.push(draw);
  setUpHands();
  setUpNearby();
  choose(all.runs[0].policy);
  setUpDifference();
  addEventListener("resize", draw);
  dark.addEventListener("change", () => choose(run.policy));
  document.documentElement.dataset.ready = "yes";
}
open();
