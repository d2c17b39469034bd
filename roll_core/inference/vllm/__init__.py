"""`vllm`: generation by vLLM's asynchronous engine, in processes of its own."""
