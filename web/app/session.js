// Who is asking, and what the roles of the token may do. The page does not offer what they may not; the Mixer refuses it anyway.
import { onUnauthorized, request, setToken } from "./api.js";
import { whoami } from "./first.js";
import { useLayoutEffect, useState } from "./html.js";
import { keep } from "./kept.js";

/** What roles may do, as docs/access.md has it. @typedef {keyof typeof ROLES} Ability */
const ROLES = {
  read: ["reader", "operator", "admin"],
  fleet: ["reader", "operator", "author", "auditor", "admin"],
  operate: ["operator", "admin"],
  author: ["author", "admin"],
  texts: ["author", "operator", "admin"],
  remove: ["admin"],
  audit: ["auditor", "admin"],
  tokens: ["admin"],
  status: ["monitor", "reader", "operator", "author", "auditor", "admin"],
};

/** Whether a caller may do something. @param {Caller | null} caller @param {Ability} what */
export function may(caller, what) {
  return !!caller && caller.roles.some((role) => ROLES[what].includes(role));
}

/** Whether a caller may do what concerns all Racks: not with a token that is for some of them only. @param {Caller} caller @param {Ability} what */
export const mayForAll = (caller, what) => may(caller, what) && !Object.keys(caller.scope?.racks || {}).length;

/** The caller; null while it is not known, and `asks` while a token is wanted. */
export function useSession() {
  const [state, setState] = useState({ caller: null, asks: false, error: null });
  /** @param {Promise<Response>} [early] */
  const ask = async (early) => setState({ caller: (await request("/api/v1/whoami", { early })).data, asks: false, error: null });
  const look = (early) => ask(early).catch((error) => setState({ caller: null, asks: error.status === 401, error: error.status === 401 ? null : error }));
  useLayoutEffect(() => {
    look(whoami);
    return onUnauthorized(() => setState((before) => ({ ...before, caller: null, asks: true })));
  }, []);
  const login = async (secret) => {
    setToken(secret.trim());
    await ask().catch((error) => {
      setToken("");
      throw error;
    });
  };
  const logout = () => {
    // Answers, drafts and the token are in the memory of the page: it is loaded anew, and what was asked is in its address no more.
    keep("sql.history", null);
    history.replaceState(null, "", "#/overview");
    location.reload();
  };
  return { ...state, login, logout, look: () => look() };
}
