// The type of an explanation, as the explorer returns it. This module contains no code.

/**
 * The computation of a weight, as in `regard.interpret.Explanation`.
 *
 * @typedef {object} Explained
 * @property {string} query_label
 * @property {string[]} key_labels
 * @property {number} query
 * @property {number} key
 * @property {number} head
 * @property {Record<string, number[]>} steps
 * @property {number} scale
 * @property {number[]} scores
 * @property {boolean} [has_scores] false for a mechanism without scores
 * @property {string[]} [score_changes] parts that change the result of the score
 * @property {string} [normalizer] how the weights follow from the scores
 * @property {boolean[]} may_see
 * @property {number} temperature
 * @property {number[]} weights
 * @property {number[][]} values
 * @property {number[]} context
 * @property {string[]} [context_changes] parts that change the context
 * @property {number[] | null} [changed_context]
 * @property {number[]} added
 * @property {number[] | null} own_part
 * @property {number[] | null} before_norm
 * @property {number[] | null} after_norm
 * @property {{ answer: string, probability: number, state: number[], classes: string[], logits: number[], probabilities: number[] } | null} answered
 */
