import { expect, test } from 'vitest';
import { withGaps } from './gaps';

test('values that are far apart are not joined', () => {
  expect(withGaps([0, 5, 100, 105], [1, 2, 3, 4], 10)).toEqual({ at: [0, 5, 6, 100, 105], values: [1, 2, null, 3, 4] });
  expect(withGaps([0, 5, 100], [1, 2, 3], Infinity)).toEqual({ at: [0, 5, 100], values: [1, 2, 3] });
});
