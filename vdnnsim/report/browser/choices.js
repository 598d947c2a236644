// Choice of the policy, sliders for other machines, and comparison of two policies.
const near = JSON.parse($("near").textContent);

function choose(policy) {
  const found = all.runs.find((each) => each.policy === policy);
  if (!found) return;
  run = found;
  $("policy").value = policy;
  view.at = null;
  document.querySelectorAll(".dot").forEach((dot) => dot.classList.toggle("chosen", dot.dataset.policies.split("\n").includes(policy)));
  const { length, cause } = run.stalls, lost = new Map();
  cause.forEach((each, at) => lost.set(each, (lost.get(each) || 0) + length[at]));
  const causes = [...lost].sort((one, other) => other[1] - one[1]).map(([each, ns]) => `${seconds(ns)} ${all.causes[each][0].replace("waits for", "waiting for")}`);
  const total = length.reduce((sum, ns) => sum + ns, 0);
  const lacking = run.numbers["process"][0] - all.capacity;
  const waits = `with unlimited memory it would take ${seconds(run.end)}${total ? `, ${seconds(total)} of it waiting` : ""}`;
  $("stalls-title").textContent = !run.fits ? `${policy} does not fit${lacking > 0 ? ` by ${size(lacking)}` : ""}; ${waits}` : causes.length ? `Of ${seconds(run.end)}, ${policy} loses ${seconds(total)}: ${causes.join(", ")}` : `${policy} never waits in ${seconds(run.end)}`;
  const bar = document.querySelector("#time .bar"), legend = document.querySelector("#time > .legend");
  const order = [...lost].sort((one, other) => other[1] - one[1]);
  bar.hidden = !order.length;
  bar.replaceChildren(...order.map(([each, ns]) => make("span", { style: `flex-grow:${ns};background:${paint(all.causes[each][1])}`, title: all.causes[each][0] })),
    make("span", { style: `flex-grow:${run.end - total}`, title: `runs: ${seconds(run.end - total)}` }));
  legend.replaceChildren(...order.map(([each, ns]) => make("li", {}, make("i", { style: `background:${paint(all.causes[each][1])}` }), `${all.causes[each][0]} `, make("b", {}, seconds(ns)))));
  for (const [id, title, colors, used] of [["looks", "streams:", all.looks, run.spans.look], ["kinds", "memory:", all.kinds, run.buffers.kind]]) {
    const present = new Set(used), named = colors.filter((_, at) => present.has(at));
    $(id).replaceChildren(make("li", {}, title), ...named.map(([name, color]) => make("li", {}, make("i", { style: `background:${paint(color)}` }), name)));
  }
  if ($("map")) {
    const pool = run.numbers["reserved"][0], gaps = pool - run.memory.totals[run.memory.peak];
    $("pool-title").textContent = `${policy} reserves ${size(pool)}, ${gaps > 0 ? `${size(gaps)} more than ` : ""}its peak of allocated memory`;
  }
  fillCauses();
  listWaits();
  listAlive();
  look(0, run.end);
}

function showNearby() {
  if (!near.length) return;
  const sizes = near[0].times.map(([bytes]) => bytes), links = [...new Set(near.map((each) => each.bandwidth))];
  const capacity = sizes[+$("capacity").value], bandwidth = links[+$("bandwidth").value];
  $("capacity-now").textContent = size(capacity);
  $("bandwidth-now").textContent = bandwidth === 1 ? "as it is" : `${bandwidth} × as fast`;
  const rows = near.filter((each) => each.bandwidth === bandwidth).map((each) => [each.policy, each.times.find(([bytes]) => bytes === capacity)[1]]);
  const longest = Math.max(...near.flatMap((each) => each.times.map(([, s]) => s || 0)));
  $("would").replaceChildren(make("div", { class: "would" }, ...rows.flatMap(([policy, s]) => [make("span", {}, policy),
    make("i", { class: s === null ? "no" : null, style: s === null ? null : `width:${(100 * s) / longest}%` }), make("b", {}, s === null ? "does not fit" : seconds(s * 1e9))])));
}
function setUpNearby() {
  if (!near.length) return;
  const sizes = near[0].times.map(([bytes]) => bytes), links = [...new Set(near.map((each) => each.bandwidth))];
  for (const [id, values, now] of [["capacity", sizes, sizes.indexOf(all.capacity)], ["bandwidth", links, links.indexOf(1)]]) {
    $(id).max = values.length - 1;
    $(id).value = Math.max(0, now);
    $(id).addEventListener("input", showNearby);
  }
  showNearby();
}

const shown = (number, unit) => (unit === "s" ? seconds(number * 1e9) : size(number));
const beside = [];
function showDifference() {
  const [one, other] = ["one", "other"].map((id) => beside[+$(id).value]);
  const names = Object.keys(one.numbers).filter((name) => one.numbers[name][0] || other.numbers[name][0]);
  const row = (name) => {
    const [[before, unit], [later]] = [one.numbers[name], other.numbers[name]], more = later - before;
    const share = before ? `${more > 0 ? "+" : more < 0 ? "−" : ""}${digits(Math.abs((100 * more) / before))} %` : "";
    return make("tr", {}, make("td", {}, name), ...[shown(before, unit), shown(later, unit), more ? (more > 0 ? "+" : "") + shown(more, unit) : "0", share].map((text) => make("td", { class: "n" }, text)));
  };
  const [longer, more] = [other.end - one.end, other.numbers["allocated"][0] - one.numbers["allocated"][0]];
  const share = Math.abs((100 * longer) / one.end), time = share < 0.005 ? "as long as" : `${digits(share)} % ${longer > 0 ? "longer" : "less time"} than`;
  const memory = more ? `${size(Math.abs(more))} ${more > 0 ? "more" : "less"} memory` : "as much memory";
  $("difference-title").textContent = `${other.label} takes ${time} ${one.label} and ${memory}`;
  const head = make("tr", {}, make("th", { scope: "col" }, ""), ...[one.label, other.label, "difference", ""].map((text) => make("th", { class: "n", scope: "col" }, text)));
  $("difference").replaceChildren(make("div", { class: "wide" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...names.map(row)))));
}
// Runs to choose from; only their numbers are asked for, so those of another page may stand among them.
function offer(runs, one, other) {
  beside.push(...runs);
  for (const [id, now] of [["one", one], ["other", other]]) {
    $(id).replaceChildren(...beside.map((each, at) => make("option", { value: at }, each.label)));
    $(id).value = now;
  }
  if (beside.length > 1) showDifference();
}
async function offerAnother() {
  const [file] = $("another").files, page = file && new DOMParser().parseFromString(await file.text(), "text/html").getElementById("recording");
  if (!page) { $("read").textContent = file ? `${file.name} holds no report` : ""; return; }
  const { name, runs } = await unpack(page.textContent), before = beside.length, same = runs.findIndex((each) => each.policy === beside[+$("one").value].policy);
  offer(runs.map((each) => ({ ...each, label: `${each.policy} of ${name}, ${file.name}` })), $("one").value, before + Math.max(0, same));
  $("read").textContent = `${runs.length} runs of ${name}`;
}
function setUpDifference() {
  const others = all.runs.filter((each) => each.end !== all.runs[0].end).sort((one, other) => one.end - other.end);
  offer(all.runs.map((each) => Object.assign(each, { label: each.policy })), 0, all.runs.indexOf(others[0] || all.runs.at(-1)));
  for (const id of ["one", "other"]) $(id).addEventListener("change", showDifference);
  $("another").addEventListener("change", offerAnother);
}
