/** What one task asks for, in words. */
import type { Schemas } from '../../lib/api';
import { bytes } from '../../lib/format';

export const requestWords = (request: Schemas['RequestView']): string =>
  [
    `${request.cores} ${request.cores === 1 ? 'core' : 'cores'}`,
    request.gpus ? `${request.gpus} ${request.gpu_type ?? 'GPU'}${request.gpus > 1 && !request.gpu_type ? 's' : ''}` : '',
    request.memory_bytes ? `${bytes(request.memory_bytes)} of memory` : '',
    request.gpu_memory_bytes ? `${bytes(request.gpu_memory_bytes)} on each GPU` : '',
    request.target ? `on ${request.target}` : '',
    request.exclusive ? 'the whole node' : '',
    request.spread ? 'spread' : '',
  ]
    .filter(Boolean)
    .join(', ');
