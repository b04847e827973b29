"""The transaction coordinator: transactional ids, their transactions and markers."""
