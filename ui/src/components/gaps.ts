/** A curve with a null where nothing is known for a while, so that no line is drawn over it. */
export function withGaps(at: readonly number[], values: readonly number[], gapS: number): { at: number[]; values: (number | null)[] } {
  const made: { at: number[]; values: (number | null)[] } = { at: [], values: [] };
  at.forEach((instant, number) => {
    const before = at[number - 1];
    if (before !== undefined && instant - before > gapS) {
      made.at.push(before + 1);
      made.values.push(null);
    }
    made.at.push(instant);
    made.values.push(values[number] ?? null);
  });
  return made;
}
