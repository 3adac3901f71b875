/** Where the cells of a grid of tasks lie: square cells in rows, as large as the box allows. No canvas. */

export interface Grid {
  /** Side of a cell with its gap, in CSS pixels. */
  cell: number;
  gap: number;
  columns: number;
  rows: number;
  width: number;
  height: number;
}

const LARGEST = 18;
const SMALLEST = 4;

export function gridOf(count: number, width: number, heightMax: number): Grid {
  for (let cell = LARGEST; ; cell--) {
    const columns = Math.max(1, Math.floor(width / cell));
    const rows = Math.ceil(count / columns);
    if (rows * cell <= heightMax || cell === SMALLEST) {
      return { cell, gap: cell > 9 ? 2 : 1, columns, rows, width: Math.min(count, columns) * cell, height: rows * cell };
    }
  }
}

export function cellAt(grid: Grid, count: number, x: number, y: number): number {
  const column = Math.floor(x / grid.cell);
  const index = Math.floor(y / grid.cell) * grid.columns + column;
  return column >= 0 && column < grid.columns && y >= 0 && index < count ? index : -1;
}

/** Where a key leads from a cell, or null for a key that moves nothing. */
export function moved(grid: Grid, count: number, from: number, key: string): number | null {
  const steps: Record<string, number> = {
    ArrowLeft: from - 1,
    ArrowRight: from + 1,
    ArrowUp: from - grid.columns,
    ArrowDown: from + grid.columns,
    Home: 0,
    End: count - 1,
    PageUp: from - grid.columns * 10,
    PageDown: from + grid.columns * 10,
  };
  const to = steps[key];
  if (to === undefined) return null;
  return to < 0 || to >= count ? (key.startsWith('Page') ? Math.max(0, Math.min(count - 1, to)) : from) : to;
}
