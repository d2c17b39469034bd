"""From prompts to scored samples, and from new weights to engines that use them."""
