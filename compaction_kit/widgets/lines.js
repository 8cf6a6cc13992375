// A figure with lines that can be dragged, from one stop to the next; the keyboard has the sliders.
const LINES = ["first", "second"];

function render({ model, el }) {
  const picture = document.createElement("div");
  const handles = LINES.map((name, index) => {
    const handle = document.createElement("div");
    handle.className = "ck-handle";
    handle.ariaHidden = "true";
    handle.addEventListener("pointerdown", (event) => {
      held = { index, place: model.get(name) };
      handle.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    handle.addEventListener("pointermove", (event) => { if (held) drag(event.clientX); });
    handle.addEventListener("lostpointercapture", () => { held = null; put(); });
    return handle;
  });
  let held = null;
  const drag = (x) => {
    const { left, width } = el.getBoundingClientRect();
    const [low, high, start, end] = model.get("scale");
    const at = low + (high - low) * ((x - left) / width - start) / (end - start);
    const stops = model.get("stops")[held.index];
    const place = stops.reduce((best, stop) => Math.abs(stop - at) < Math.abs(best - at) ? stop : best);
    if (place === held.place) return;
    held.place = place;
    model.set(LINES[held.index], place);
    model.save_changes();
    put();
  };
  const put = () => {
    const [low, high, start, end] = model.get("scale");
    handles.forEach((handle, index) => {
      // What comes back from the kernel is older than where a line is held.
      const place = held?.index === index ? held.place : model.get(LINES[index]);
      const share = (Math.min(Math.max(place, low), high) - low) / (high - low);
      const [top, bottom] = model.get("spans")[index];
      handle.style.left = `${100 * (start + (end - start) * share)}%`;
      handle.style.top = `${100 * top}%`;
      handle.style.height = `${100 * (bottom - top)}%`;
      handle.classList.toggle("ck-held", held?.index === index);
    });
  };
  model.on("change:value", () => { picture.innerHTML = model.get("value"); });
  for (const name of [...LINES, "scale", "spans"]) model.on(`change:${name}`, put);
  el.classList.add("ck-lines");
  el.append(picture, ...handles);
  picture.innerHTML = model.get("value");
  put();
}

export default { render };
