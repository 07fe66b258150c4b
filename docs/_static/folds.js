// What a link leads to is opened: the folds around it, and the one directly in it.
function openFolds() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  const inside = [...target.children, ...(target.tagName === "DT" ? target.nextElementSibling.children : [])];
  for (const node of inside) if (node.tagName === "DETAILS") node.open = true;
  target.scrollIntoView();
}
window.addEventListener("DOMContentLoaded", openFolds);
window.addEventListener("hashchange", openFolds);
