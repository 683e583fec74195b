SELECT id,
       strftime('%Y-%m-%d %H:%M:%f', ((id >> 22) + 1704067200000) / 1000.0, 'unixepoch') AS created_at,
       (id >> 12) & 1023 AS worker_id,
       id & 4095 AS sequence
FROM orders
WHERE id >= (strftime('%s', '2026-01-01') * 1000 - 1704067200000) << 22
  AND id < (strftime('%s', '2027-01-01') * 1000 - 1704067200000) << 22
ORDER BY id
