"use strict";
// Text reaches the document through textContent alone, so that no rollout can bring markup of its own.
(() => {
  const rollouts = JSON.parse(document.getElementById("data").textContent);
  const AT_ONCE = 50;
  let shown = AT_ONCE;

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const number = (value) => String(Number(value.toPrecision(4)));
  const signed = (value) => (value > 0 ? "+" : "") + number(value);
  const sign = (value) => (value > 0 ? "positive" : value < 0 ? "negative" : "");
  const distinct = (key) => [...new Set(rollouts.map((rollout) => String(rollout[key])))];

  // Each filter: its name, also in the address behind #, its label, its choices, or null for a field, and what stands
  // for none of them.
  const FILTERS = [
    ["kind", "from", distinct("kind")],
    ["step", "step", distinct("step")],
    ["tag", "tag", distinct("tag")],
    ["success", "success", ["true", "false"]],
    ["min", "score from", null],
    ["max", "score to", null],
    ["text", "text", null],
    ["sort", "order", ["lowest score", "highest score"], "newest step"],
    ["parts", "folded parts", ["open"], "closed"],
  ];
  const fields = {};

  const wanted = (rollout) => {
    const value = (name) => fields[name].value;
    if (["kind", "step", "tag", "success"].some((name) => value(name) && String(rollout[name]) !== value(name))) return false;
    if (value("min") !== "" && !(rollout.score !== null && rollout.score >= Number(value("min")))) return false;
    if (value("max") !== "" && !(rollout.score !== null && rollout.score <= Number(value("max")))) return false;
    const text = value("text").toLowerCase();
    const said = () => [rollout.id, rollout.group, rollout.prompt, ...rollout.turns.map((turn) => turn[1])];
    return !text || said().some((one) => one.toLowerCase().includes(text));
  };

  const chosen = () => {
    const found = rollouts.filter(wanted);
    const factor = { "lowest score": 1, "highest score": -1 }[fields.sort.value];
    const key = (rollout) => (rollout.score === null ? Infinity : factor * rollout.score);
    return factor ? found.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0)) : found;
  };

  const heading = (rollout) => {
    const head = element("h2");
    const facts = [rollout.kind + " step " + rollout.step, rollout.tag, rollout.id, rollout.end];
    if (rollout.success !== null) facts.push(rollout.success ? "success" : "no success");
    if (rollout.group) facts.push("group " + rollout.group);
    if (rollout.score !== null) head.append(element("span", "score " + sign(rollout.score), "score " + number(rollout.score)));
    head.append(...facts.filter(Boolean).map((fact) => element("span", "", fact)));
    return head;
  };

  const turn = ([role, text, reward, metrics]) => {
    const row = element("div", role === "assistant" ? "turn assistant" : "turn");
    const side = element("div", "side");
    side.append(element("b", "", role));
    if (reward !== null) side.append(element("span", "reward " + sign(reward), "reward " + signed(reward)));
    for (const [name, value] of Object.entries(metrics)) side.append(element("div", "", name + " " + number(value)));
    row.append(side, element("pre", "", text));
    return row;
  };

  const folded = (label, body) => {
    const details = element("details");
    details.append(element("summary", "", label));
    // Filled when it is opened: a page may hold millions of tokens.
    details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(body()); });
    details.open = fields.parts.value === "open";
    return details;
  };

  const tokens = (rollout) => {
    const largest = rollout.tokens.reduce((most, [, advantage]) => Math.max(most, Math.abs(advantage ?? 0)), 0) || 1;
    const block = element("pre", "tokens");
    for (const [text, advantage] of rollout.tokens) {
      const span = element("span", "token", text);
      if (advantage !== null) {
        const strength = (0.6 * Math.abs(advantage)) / largest;
        span.style.backgroundColor = `rgb(${advantage > 0 ? "0 160 70" : "220 40 50"} / ${strength})`;
        span.title = "advantage " + signed(advantage);
      }
      block.append(span);
    }
    return block;
  };

  const article = (rollout) => {
    const made = element("article");
    made.append(heading(rollout));
    if (rollout.prompt) made.append(folded("prompt", () => element("pre", "", rollout.prompt)));
    made.append(...rollout.turns.map(turn));
    if (rollout.tokens.length) {
      const known = rollout.tokens.map(([, advantage]) => advantage).filter((advantage) => advantage !== null);
      const ends = [Math.min, Math.max].map((one) => signed(known.reduce((a, b) => one(a, b), known[0] ?? 0)));
      const told = known.length ? `${known.length} with advantages from ${ends[0]} to ${ends[1]}` : "without advantages";
      made.append(folded(`tokens: ${rollout.tokens.length}, ${told}`, () => tokens(rollout)));
    }
    const metrics = Object.entries(rollout.metrics).map(([name, value]) => name + " " + number(value));
    if (metrics.length) made.append(folded("metrics", () => element("pre", "", metrics.join("\n"))));
    return made;
  };

  const draw = () => {
    const found = chosen();
    const scores = found.map((rollout) => rollout.score).filter((score) => score !== null);
    const mean = scores.length ? ", mean score " + number(scores.reduce((sum, score) => sum + score, 0) / scores.length) : "";
    document.getElementById("count").textContent = `${found.length} of ${rollouts.length} rollouts${mean}`;
    document.getElementById("rollouts").replaceChildren(...found.slice(0, shown).map(article));
    document.getElementById("more").hidden = found.length <= shown;
  };

  const field = ([name, label, choices, none = "all"]) => {
    const made = element("label", "", label);
    const input = element(choices ? "select" : "input");
    input.name = name;
    if (choices) for (const choice of ["", ...choices]) input.append(new Option(choice || none, choice));
    else if (name !== "text") Object.assign(input, { type: "number", step: "any" });
    input.addEventListener("input", () => {
      shown = AT_ONCE;
      const set = Object.entries(fields).filter(([, one]) => one.value !== "").map(([key, one]) => [key, one.value]);
      history.replaceState(null, "", "#" + new URLSearchParams(set));
      draw();
    });
    fields[name] = input;
    made.append(input);
    return made;
  };

  const fromAddress = () => {
    const given = new URLSearchParams(location.hash.slice(1));
    for (const [name, input] of Object.entries(fields)) input.value = given.get(name) ?? "";
    draw();
  };

  const form = document.getElementById("filters");
  form.append(...FILTERS.map(field));
  form.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("more").addEventListener("click", () => { shown += AT_ONCE; draw(); });
  window.addEventListener("hashchange", fromAddress);
  fromAddress();
})();
