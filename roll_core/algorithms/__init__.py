"""Everything numeric between a reward and a gradient, as pure functions of tensors.

Shapes in this folder: B rows, R response columns. Whatever is per token is aligned to the response tokens, so
log_probs[b, t] belongs to responses[b, t]; response_mask is bool [B, R], true on the tokens the model produced.
What lies under a false mask is never read: infinities and NaN there change neither a value nor a gradient.

Reading order: rewards (one number per row), episodes (the same where rows are turns), advantages (one number per
token), masks (which rows count), aggregation (how much each token counts), variants and losses (what is minimised),
correction (engine and trainer disagree), kl, whitening, metrics.
"""
