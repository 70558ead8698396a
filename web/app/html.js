// Preact, its hooks, and `html`: markup as tagged templates, so that nothing has to be built.
import { Component, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { Component, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export const html = htm.bind(h);
