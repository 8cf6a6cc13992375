// Jupyter takes arrows for its own, to go to another cell, unless what has the focus says that it needs them.
function render({ el }) {
  const keep = ({ target }) => {
    if (target.matches?.(".ck-workbench select")) target.dataset.lmSuppressShortcuts = "true";
  };
  el.style.display = "none";
  document.addEventListener("focusin", keep);
  return () => document.removeEventListener("focusin", keep);
}

export default { render };
