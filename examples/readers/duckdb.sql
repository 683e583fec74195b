SELECT id,
       make_timestamp(((id >> 22) + 1704067200000) * 1000) AS created_at,
       (id >> 12) & 1023 AS worker_id,
       id & 4095 AS sequence
FROM orders
WHERE id >= (epoch_ms(TIMESTAMP '2026-01-01') - 1704067200000) << 22
  AND id < (epoch_ms(TIMESTAMP '2027-01-01') - 1704067200000) << 22
ORDER BY id
