// Gives the browser a file to save.

/** @param {BlobPart[]} parts @param {string} name @param {string} [type] */
export function saveFile(parts, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
