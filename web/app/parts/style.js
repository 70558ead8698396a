// Styles of one page, loaded with it.

/** @param {string} name a file of the folder of styles */
export function loadStyle(name) {
  const style = document.createElement("link");
  [style.rel, style.href] = ["stylesheet", new URL(`../../style/${name}`, import.meta.url).href];
  document.head.append(style);
}
