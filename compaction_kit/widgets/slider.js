// Where a move ends: at the next stop in its direction, if the slider has stops.
function stopFor(value, former, stops) {
  if (!stops.length || stops.includes(value)) return value;
  const next = value > former ? stops.find((stop) => stop > value) : stops.findLast((stop) => stop < value);
  return next ?? former;
}

// A slider of the page's own: labelled, moved by mouse and keyboard, and with its value as text.
function render({ model, el }) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  input.type = "range";
  input.id = `ck-slider-${Math.random().toString(36).slice(2)}`;
  label.htmlFor = input.id;
  const shown = document.createElement("span");
  shown.ariaHidden = "true";  // the slider itself has it
  let held = false;
  const sync = () => {
    label.textContent = model.get("label");
    input.min = model.get("min");
    input.max = model.get("max");
    input.setAttribute("aria-valuetext", model.get("text"));
    shown.textContent = model.get("text");
    // What comes back from the kernel is older than where the thumb is held.
    if (!held) input.value = model.get("value");
  };
  input.addEventListener("pointerdown", () => { held = true; });
  const release = () => { held = false; sync(); };
  input.addEventListener("pointerup", release);
  input.addEventListener("pointercancel", release);
  input.addEventListener("input", () => {
    input.value = stopFor(Number(input.value), model.get("value"), model.get("stops"));
    model.set("value", Number(input.value));
    model.save_changes();
  });
  model.on("change", sync);
  el.classList.add("ck-slider");
  // Else JupyterLab takes the arrows for its own, and folds the notebook's headings.
  input.dataset.lmSuppressShortcuts = "true";
  input.addEventListener("keydown", (event) => event.stopPropagation());
  el.append(label, input, shown);
  sync();
}

export default { render };
