"use strict";
// Everything shown is set as text, never as markup: outputs are strangers' words.
const NAMES = { correct: "correct", wrong: "wrong", no_answer: "no answer", truncated: "truncated", error: "error", unjudged: "not judged" };
const PAGE = 100; // samples added at a time
const samples = JSON.parse(document.getElementById("data").textContent).samples;
const list = document.getElementById("list");
const more = document.getElementById("more");
const state = { hidden: new Set(), category: "", text: "", differing: false, shown: PAGE };

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = text;
  return element;
}

function block(title, pieces) {
  const parts = [make("h3", "", title)];
  const box = make("div", "text");
  if (!pieces.length) box.append(make("span", "empty", "empty"));
  for (const [kind, text] of pieces) {
    box.append(kind === "mark" ? make("mark", "", text) : kind === "gap" ? make("span", "gap", text) : document.createTextNode(text));
  }
  parts.push(box);
  return parts;
}

function facts(sample) {
  const rows = [
    ["right answer", sample.gold],
    ["extracted", sample.extracted === null ? "nothing" : sample.extracted],
    ["verdict", NAMES[sample.verdict] + (sample.note ? ": " + sample.note : "")],
    ["scorer", sample.scorer],
    ["finish reason", sample.finish],
    ["output tokens", sample.tokens],
    ["seed", sample.seed],
    ["error", sample.error],
  ];
  if (sample.second) {
    const said = sample.second.is_correct === null ? "none (" + sample.second.error + ")" : sample.second.is_correct ? "correct" : "wrong";
    rows.push(["second opinion", said + ", by " + sample.second.by]);
  }
  if (sample.judge) rows.push(["judge", (sample.judge.error || sample.judge.reason || sample.judge.verdict || "") + ", by " + sample.judge.by]);
  const dl = make("dl");
  for (const [name, value] of rows) {
    if (value === null || value === undefined) continue;
    dl.append(make("dt", "", name), make("dd", "", String(value)));
  }
  return dl;
}

function body(sample) {
  const element = make("div", "body");
  element.append(facts(sample));
  for (const [role, content] of sample.messages) element.append(...block(role, [["text", content]]));
  if (sample.reasoning.length) element.append(...block("reasoning", sample.reasoning));
  element.append(...block("output", sample.output));
  return element;
}

function card(sample) {
  const article = make("article");
  const details = make("details");
  const summary = make("summary");
  summary.append(make("span", "verdict " + sample.verdict, NAMES[sample.verdict]), make("span", "key", sample.key));
  summary.append(make("span", "said", sample.extracted === null ? "" : sample.extracted));
  summary.append(make("span", "side", [sample.category, sample.tokens === null || sample.tokens === undefined ? null : sample.tokens + " tokens"].filter(Boolean).join(" · ")));
  details.append(summary);
  details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(body(sample)); });
  article.append(details);
  return article;
}

function differs(sample) {
  return Boolean(sample.second) && sample.second.is_correct !== null && sample.second.is_correct !== (sample.verdict === "correct");
}

function matches(sample) {
  if (state.hidden.has(sample.verdict)) return false;
  if (state.category && sample.category !== state.category) return false;
  if (state.differing && !differs(sample)) return false;
  if (!state.text) return true;
  const parts = [sample.key, sample.extracted || "", sample.gold, ...sample.messages.map((m) => m[1]), ...sample.output.map((p) => p[1])];
  return parts.some((part) => part.toLowerCase().includes(state.text));
}

function draw() {
  const found = samples.filter(matches);
  list.replaceChildren(...found.slice(0, state.shown).map(card));
  more.hidden = found.length <= state.shown;
  document.getElementById("count").textContent = found.length + " of " + samples.length + " samples";
}

// report.html#KEY (its # written %23) leads to one sample.
function openLinked() {
  const key = decodeURIComponent(location.hash.slice(1));
  const place = samples.findIndex((sample) => sample.key === key);
  if (place < 0) return;
  state.shown = Math.max(state.shown, place + 1);
  draw();
  const article = list.children[place];
  article.firstElementChild.open = true;
  article.scrollIntoView();
}

function again() { state.shown = PAGE; draw(); }

function filters() {
  const nav = document.getElementById("filters");
  for (const [verdict, name] of Object.entries(NAMES)) {
    const count = samples.filter((s) => s.verdict === verdict).length;
    if (!count) continue;
    const button = make("button", verdict, count + " " + name);
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const isHidden = state.hidden.has(verdict);
      if (isHidden) state.hidden.delete(verdict); else state.hidden.add(verdict);
      button.setAttribute("aria-pressed", String(isHidden));
      again();
    });
    nav.append(button);
  }
  const categories = [...new Set(samples.map((s) => s.category).filter(Boolean))];
  if (categories.length > 1) {
    const select = make("select");
    select.setAttribute("aria-label", "Category");
    select.append(new Option("all categories", ""), ...categories.map((c) => new Option(c, c)));
    select.addEventListener("change", () => { state.category = select.value; again(); });
    nav.append(select);
  }
  if (samples.some(differs)) {
    const button = make("button", "", "only where the second opinion differs");
    button.type = "button";
    button.addEventListener("click", () => { state.differing = !state.differing; button.style.fontWeight = state.differing ? "bold" : ""; again(); });
    nav.append(button);
  }
  const input = make("input");
  input.type = "search";
  input.placeholder = "Search problems and outputs";
  input.setAttribute("aria-label", "Search");
  input.addEventListener("input", () => { state.text = input.value.toLowerCase(); again(); });
  const count = make("span", "count");
  count.id = "count";
  nav.append(input, count);
}

more.addEventListener("click", () => { state.shown += PAGE; draw(); });
window.addEventListener("hashchange", openLinked);
filters();
draw();
openLinked();
