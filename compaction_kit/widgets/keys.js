const HEADERS = ".ck-workbench .jupyter-widget-Collapse-header";

// ipywidgets' accordions have no tab stop and tell screen readers nothing, nor do its buttons say which one is
// chosen; fields with a label have no tooltip, and those without one no name.
function describe(tips) {
  for (const [name, tip] of Object.entries(tips)) {
    for (const one of document.querySelectorAll(`.${name}, .${name} [title]`)) one.title = tip;
  }
  for (const input of document.querySelectorAll(".ck-workbench input[title]")) {
    if (!input.labels[0]?.innerText) input.ariaLabel = input.title;
  }
  for (const one of document.querySelectorAll(".ck-rail button")) {
    one.ariaPressed = String(one.classList.contains("mod-active"));
  }
  for (const header of document.querySelectorAll(HEADERS)) {
    header.tabIndex = 0;
    header.role = "button";
    header.ariaExpanded = String(header.parentElement.classList.contains("jupyter-widget-Collapse-open"));
  }
}

function press(event) {
  if (!event.target.matches?.(HEADERS) || !["Enter", " "].includes(event.key)) return;
  event.preventDefault();
  event.target.click();
}

// Jupyter takes arrows and Enter for its own, to go to another cell, unless what has the focus needs them.
function keep({ target }) {
  if (target.matches?.(`.ck-workbench :is(select, button, summary), ${HEADERS}`)) {
    target.dataset.lmSuppressShortcuts = "true";
  }
}

function render({ model, el }) {
  const observer = new MutationObserver(() => describe(model.get("tips")));
  let gone = false;
  const begin = () => {
    const page = el.closest(".ck-workbench");
    if (!page) return gone || requestAnimationFrame(begin);
    observer.observe(page, { subtree: true, childList: true, attributeFilter: ["class"] });
    page.addEventListener("focusin", keep);
    page.addEventListener("keydown", press);
    describe(model.get("tips"));
    model.send({ shown: true });
  };
  begin();
  return () => { gone = true; observer.disconnect(); };
}

export default { render };
