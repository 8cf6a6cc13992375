// A button that puts a text into the clipboard.
function render({ model, el }) {
  const button = document.createElement("button");
  button.className = "jupyter-button ck-copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(model.get("text"));
    } catch {
      // A page that is not served securely has no such clipboard.
      const area = document.createElement("textarea");
      area.value = model.get("text");
      el.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  el.append(button);
}

export default { render };
