// Table of the waits of a run, the longest first; a row zooms to its wait.
const waits = { order: [], shown: 60, at: -1 };

function listWaits() {
  const { length, cause, start } = run.stalls, wanted = $("cause").value, word = $("find").value.toLowerCase();
  waits.order = [...length.keys()].sort((one, other) => length[other] - length[one] || start[one] - start[other]);
  waits.shown = 60;
  const fits = (at) => (wanted === "" || cause[at] === +wanted) && (!word || stallWords(at).join(" ").toLowerCase().includes(word));
  waits.order = waits.order.filter(fits);
  const lost = waits.order.reduce((sum, at) => sum + length[at], 0);
  $("found").textContent = `${waits.order.length} of ${length.length} waits, ${seconds(lost)}`;
  showWaits();
}
function showWaits() {
  const { start, length, cause, blocked, waited } = run.stalls;
  const body = waits.order.slice(0, waits.shown).map((at) => {
    const row = make("tr", { class: "go", tabindex: 0 }, make("td", { class: "n" }, seconds(length[at])), make("td", { class: "n" }, seconds(start[at])),
      make("td", {}, make("span", { class: "swatch", style: `background:${paint(all.causes[cause[at]][1])}` }), all.causes[cause[at]][0]),
      make("td", {}, called(blocked[at])), make("td", {}, waited[at] < 0 ? "" : called(waited[at])));
    row.addEventListener("click", () => visit(at));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") visit(at); });
    return row;
  });
  document.querySelector("#waits tbody").replaceChildren(...body);
  $("more").hidden = waits.order.length <= waits.shown;
}
function fillCauses() {
  const present = [...new Set(run.stalls.cause)].sort();
  $("cause").replaceChildren(make("option", { value: "" }, "every cause"), ...present.map((cause) => make("option", { value: cause }, all.causes[cause][0])));
}

// Show a wait with as much around it as it lasts, ten times over at the most.
function visit(at, scroll = true) {
  const { start, length } = run.stalls;
  if (at < 0 || at >= start.length) return;
  waits.at = at;
  const around = Math.max(length[at] * 3, run.end / 1e5);
  look(start[at] - around, start[at] + length[at] + around);
  say("readout", stallWords(at));
  if (scroll) $("iteration").scrollIntoView({ block: "center" });
}
const longest = () => scan(run.stalls.length, 0, run.stalls.length.length);
