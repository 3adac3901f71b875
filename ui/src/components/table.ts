/** What a table needs to know of its columns, and how an array is sorted. No elements. */

export interface Column {
  id: string;
  title: string;
  /** A track of a CSS grid, such as `90px` or `minmax(120px, 2fr)`. */
  width: string;
  align?: 'right';
  sortable?: boolean;
  /** Its track on phones, if not the same. */
  phone?: string;
  /** Left out on phones. */
  wide?: boolean;
  /** Left out where the table is narrower than this, in pixels. */
  from?: number;
}

/** A sort order as the URL has it: `name`, or `-name` for the largest first. */
export function nextSort(sort: string, column: string): string {
  return sort === column ? `-${column}` : sort === `-${column}` ? '' : column;
}

type Sortable = string | number | null | undefined;

const TEXT = new Intl.Collator('en', { numeric: true });

/** A sorted copy; what has no value comes last, either way. Rows that are equal keep their order. */
export function sorted<T>(rows: readonly T[], sort: string, valueOf: (row: T, column: string) => Sortable): T[] {
  if (!sort) return [...rows];
  const isDown = sort.startsWith('-');
  const column = isDown ? sort.slice(1) : sort;
  const keyed = rows.map((row) => ({ row, key: valueOf(row, column) ?? null }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return a.key === b.key ? 0 : a.key === null ? 1 : -1;
    const order = typeof a.key === 'number' && typeof b.key === 'number' ? a.key - b.key : TEXT.compare(String(a.key), String(b.key));
    return isDown ? -order : order;
  });
  return keyed.map((each) => each.row);
}

/**
 * Which row each of `slots` elements shows, so that a row which stays in sight keeps its element, and one that leaves gives
 * its element to one that comes. Elements are changed, never made anew.
 */
export function inSlots(from: number, slots: number): number[] {
  return Array.from({ length: slots }, (_nothing, slot) => from + ((((slot - from) % slots) + slots) % slots));
}

/** The rows to draw for a scrolled box, with some above and below. */
export function visibleRange(scrollTop: number, height: number, rowHeight: number, count: number, beyond = 12): [from: number, to: number] {
  const from = Math.max(0, Math.min(count, Math.floor(scrollTop / rowHeight)) - beyond);
  return [from, Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + beyond)];
}
