"""`sglang`: generation by SGLang's engine, in a process of its own."""
