"use strict";
// Shows every field of one chosen cell. Texts are set as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const choice = document.getElementById("cell");
const full = document.getElementById("full");

function element(name, text) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  return made;
}

function show(cell) {
  full.replaceChildren();
  if (cell.status !== "ok") {
    full.append(element("p", `${cell.status}: ${cell.reason}`));
    return;
  }
  const table = element("table");
  const head = element("tr");
  for (const title of ["field", "median", "unit", "repetitions", "definition"]) head.append(element("th", title));
  table.append(head);
  for (const [path, value, unit, each, definition] of cell.fields) {
    const row = element("tr");
    for (const text of [path, value, unit, each.join("  "), definition]) row.append(element("td", text));
    table.append(row);
  }
  const wide = element("div");
  wide.className = "wide";
  wide.append(table);
  full.append(wide);
}

data.cells.forEach((cell, i) => {
  const option = element("option", `${i + 1}: ${cell.name}`);
  option.value = String(i);
  choice.append(option);
});
choice.addEventListener("change", () => show(data.cells[Number(choice.value)]));
if (data.cells.length) show(data.cells[0]);
