// Live buffers at the peak, or at the time that was clicked.
function listAlive() {
  const { time: times, buffer, delta, totals, peak } = run.memory;
  if (!times.length) return;
  const last = view.at === null ? peak : Math.max(0, after(times.length, (each) => times[each], view.at) - 1);
  const live = new Map();
  for (let at = 0; at <= last; at++) live.set(buffer[at], (live.get(buffer[at]) || 0) + delta[at]);
  const found = [...live].filter(([, bytes]) => bytes > 0).sort((one, other) => other[1] - one[1]);
  const when = view.at === null ? `at the peak of ${run.policy}, ${seconds(times[peak])}` : `at ${seconds(view.at)}`;
  $("alive-title").textContent = `${size(totals[last])} are live ${when}`;
  const kinds = all.kinds.map(([kind, color], at) => [kind, paint(color), run.memory.inUse[at][last]]).filter(([, , bytes]) => bytes > 0);
  $("alive-bar").hidden = false;
  $("alive-bar").replaceChildren(...kinds.map(([kind, color, bytes]) => make("span", { style: `flex-grow:${bytes};background:${color}`, title: `${kind}: ${size(bytes)}` })));
  const row = ([number, bytes]) => make("tr", {}, make("td", {}, all.names[run.buffers.name[number]]),
    make("td", {}, make("span", { class: "swatch", style: `background:${paint(all.kinds[run.buffers.kind[number]][1])}` }), all.kinds[run.buffers.kind[number]][0]), make("td", { class: "n" }, size(bytes)));
  const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "buffer"), make("th", { scope: "col" }, "kind"), make("th", { scope: "col", class: "n" }, "size")));
  const legend = make("ul", { class: "legend" }, ...kinds.map(([kind, color, bytes]) => make("li", {}, make("i", { style: `background:${color}` }), `${kind} `, make("b", {}, size(bytes)))));
  const table = make("table", {}, head, make("tbody", {}, ...found.slice(0, 400).map(row)));
  const more = found.length > 400 ? [make("p", { class: "note" }, `and ${found.length - 400} smaller ones`)] : [];
  $("alive-table").replaceChildren(legend, make("div", { class: "wide tall", tabindex: 0, role: "region", "aria-label": "buffers by size" }, table), ...more);
}
