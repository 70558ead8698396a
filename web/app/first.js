// Runs while the frame is still on its way: asks who this is, and for all files of the view that the address names, which `index.html`
// lists. Without the list, each file is asked for by the one that imports it.

/** Every view waits for this answer. */
export const whoami = fetch("/api/v1/whoami", { headers: { accept: "application/json" }, cache: "no-store" });
// Whoever reads it says what went wrong.
whoami.catch(() => {});

const views = new Map(Object.entries(JSON.parse(document.getElementById("views")?.textContent || "{}")));

function preload() {
  const [path] = location.hash.replace(/^#\/?/, "").split("?");
  const name = path || "overview";
  for (const file of views.get(name) || []) {
    const link = document.createElement("link");
    link.href = new URL(`../${file}`, import.meta.url).href;
    if (file.endsWith(".css")) [link.rel, link.as] = ["preload", "style"];
    else link.rel = "modulepreload";
    document.head.append(link);
  }
  views.delete(name);
}

preload();
addEventListener("hashchange", preload);
