// A guess first, then the answer: all in the browser, so that it needs no kernel.
const scores = (globalThis.ckPredictions ??= new WeakMap());  // by notebook: by question whether it was right

function text(value, unit = "") {
  return `${typeof value === "number" ? value.toLocaleString("en") : value} ${unit}`.trim();
}

function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function render({ model, el }) {
  const [question, answer, choices, unit, why] =
    ["question", "answer", "choices", "unit", "why"].map((name) => model.get(name));
  const button = make("button", { type: "submit", textContent: "Reveal" });
  const outcome = make("div", { className: "ck-predict-outcome", role: "status" });
  const name = `ck-guess-${Math.random().toString(36).slice(2)}`;
  const number = make("input", { type: "number", step: "any", id: name });
  const radios = choices.map((value) => make("input", { type: "radio", name, value }));
  const inputs = choices.length ? radios : [number];
  const field = choices.length
    ? radios.map((radio) => make("label", {}, radio, radio.value))
    : [make("label", { htmlFor: name, textContent: "Your guess" }), number, unit];
  const form = make("form", {}, make("fieldset", {},
    make("legend", { textContent: question }),
    make("div", { className: choices.length ? "ck-predict-choices" : "ck-predict-number" }, ...field)), button);

  const read = () => choices.length
    ? radios.find((radio) => radio.checked)?.value ?? null
    : number.value === "" ? null : number.valueAsNumber;

  function show() {
    const guess = model.get("guess"), revealed = model.get("revealed"), right = guess === answer;
    for (const radio of radios) radio.checked = radio.value === guess;
    if (read() !== guess) number.value = guess ?? "";
    for (const input of inputs) input.disabled = revealed;
    button.disabled = guess === null || revealed;
    el.dataset.outcome = revealed ? (right ? "right" : "wrong") : "";
    if (!revealed) return outcome.replaceChildren();
    const verdict = right ? "Right" : "Not quite";
    const said = right ? text(answer, unit) : `the answer is ${text(answer, unit)}, you said ${text(guess)}`;
    outcome.replaceChildren(make("b", { textContent: verdict }), `: ${said}. ${why} `, score(right));
  }

  function score(right) {
    const notebook = el.closest(".jp-NotebookPanel") ?? document.body;
    const known = scores.get(notebook) ?? new Map();
    scores.set(notebook, known.set(question, right));
    const count = [...known.values()].filter(Boolean).length;
    return make("span", { className: "ck-predict-score", textContent: `${count} of ${known.size} right` });
  }

  form.addEventListener("input", () => {
    model.set("guess", read());
    model.save_changes();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (button.disabled) return;
    model.set("revealed", true);
    model.save_changes();
  });
  // Else Jupyter takes the keys for its own.
  for (const input of inputs) input.dataset.lmSuppressShortcuts = "true";
  form.addEventListener("keydown", (event) => event.stopPropagation());
  model.on("change:guess change:revealed", show);
  el.classList.add("ck-predict");
  el.append(form, outcome);
  requestAnimationFrame(show);  // once it is within its notebook, whose score it shows
}

export default { render };
