// Types that several files of the page name, and the few places where it says more than the compiler's own libraries.

/** What is asked of the Mixer, and how. */
interface RequestOptions {
  params?: Record<string, any>;
  method?: string;
  body?: any;
  /** The content type of a body that is a text. */
  type?: string;
  accept?: string;
  signal?: AbortSignal;
  /** The answer, if it was asked for already. */
  early?: Promise<Response>;
}

/** Parameters of a view's address; what is empty is left out. */
type AddressParameters = Record<string, string | string[] | null | undefined>;

/** A range of times, ms. */
interface TimeSpan {
  from: number;
  to: number;
}

/** Who asks, as `/api/v1/whoami` has it. */
interface Caller {
  caller: string;
  roles: string[];
  scope: any;
}

interface Document {
  /** What `index.html` and the frame always have. */
  getElementById(id: "page" | "content"): HTMLElement;
}

interface Element {
  focus(options?: FocusOptions): void;
}

// As by an index: what is asked for is taken to be there.
interface Array<T> {
  at(index: number): T;
  pop(): T;
}
interface ObjectConstructor {
  groupBy<T>(items: Iterable<T>, keyOf: (item: T, index: number) => PropertyKey): Record<string, T[]>;
}

interface JSON {
  parse(text: string | null): any;
  /** `source` is the number as it was written. */
  parse(text: string, reviver: (this: any, key: string, value: any, context: { source: string }) => any): any;
  /** A number that is written as it is; not every browser has it. */
  rawJSON?: (text: string) => any;
}
