// Jupyter takes arrows and Enter for its own, to go to another cell, unless what has the focus needs them.
function render({ el }) {
  const keep = ({ target }) => {
    if (target.matches?.(".ck-workbench :is(select, button, summary)")) target.dataset.lmSuppressShortcuts = "true";
  };
  el.style.display = "none";
  document.addEventListener("focusin", keep);
  return () => document.removeEventListener("focusin", keep);
}

export default { render };
