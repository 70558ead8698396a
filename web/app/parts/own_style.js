// The style sheet of some pages only, loaded with the first of them. A page waits for it, and does without if it does not come.
const loading = new Map();

/** @param {string} name of a file, as it is from `style/` */
export function ownStyle(name) {
  if (!loading.has(name)) {
    const link = document.createElement("link");
    [link.rel, link.href] = ["stylesheet", new URL(`../../style/${name}`, import.meta.url).href];
    loading.set(name, new Promise((ready) => {
      link.onload = ready;
      link.onerror = () => ready(loading.delete(name));
    }));
    document.head.append(link);
  }
  return loading.get(name);
}
