// What the page uses of them. What begins as null or as an empty list may become anything.
type Wide<S> = [S] extends [null | never[]] ? any : S extends boolean ? boolean : S extends number ? number : S extends string ? string
  : S extends Function ? S : S extends object ? { [K in keyof S]: [S[K]] extends [null | never[]] ? any : S[K] } : S;
type Setter<S> = (next: S | ((before: S) => S)) => void;
type Inputs = readonly unknown[];
export function useState<S>(initial: S | (() => S)): [Wide<S>, Setter<Wide<S>>];
export function useRef<R>(initial: R): { current: Wide<R> };
export function useMemo<V>(make: () => V, inputs: Inputs): V;
export function useCallback<F extends Function>(callback: F, inputs: Inputs): F;
export function useEffect(effect: () => unknown, inputs?: Inputs): void;
export function useLayoutEffect(effect: () => unknown, inputs?: Inputs): void;
